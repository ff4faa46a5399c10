package words

// Table gives each key a value. It is for the few dozen words and numbers of NVML: unlike a map, which would be filled in each
// process that loads the library, it lies in the library's file as it is.
type Table[K comparable, V any] []struct {
	Key   K
	Value V
}

// Find returns the value of a key, and whether there is one.
func (t Table[K, V]) Find(key K) (value V, known bool) {
	for i := range t {
		if t[i].Key == key {
			return t[i].Value, true
		}
	}
	return value, false
}

// Of returns the value of a key, or nothing.
func (t Table[K, V]) Of(key K) V {
	value, _ := t.Find(key)
	return value
}

// KeyOf returns the key of a value, and whether there is one.
func KeyOf[K, V comparable](t Table[K, V], value V) (key K, known bool) {
	for i := range t {
		if t[i].Value == value {
			return t[i].Key, true
		}
	}
	return key, false
}
