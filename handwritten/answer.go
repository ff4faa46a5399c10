package handwritten

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// opt answers a value of the profile; NOT_SUPPORTED if the profile does not give it.
func opt[T any](o profiles.Opt[T]) (T, abi.Return) {
	if !o.Valid {
		return o.Value, abi.ERROR_NOT_SUPPORTED
	}
	return o.Value, abi.SUCCESS
}

// pair answers two values; NOT_SUPPORTED unless the profile gives both.
func pair[T any](a, b profiles.Opt[T]) (T, T, abi.Return) {
	if !a.Valid || !b.Valid {
		return a.Value, b.Value, abi.ERROR_NOT_SUPPORTED
	}
	return a.Value, b.Value, abi.SUCCESS
}

// as converts o to another number type, since NVML has enums, and unsigned numbers where the profile has signed ones.
func as[N, M ~uint8 | ~uint32 | ~int32 | ~uint64](o profiles.Opt[M]) profiles.Opt[N] {
	return profiles.Opt[N]{Value: N(o.Value), Valid: o.Valid}
}

// mode is a mode as NVML numbers it.
func mode[N ~uint32](o profiles.Opt[profiles.Enabled]) profiles.Opt[N] {
	return profiles.Opt[N]{Value: N(bit(bool(o.Value))), Valid: o.Valid}
}

// flag is a boolean as NVML numbers it.
func flag[N ~uint32](o profiles.Opt[bool]) profiles.Opt[N] {
	return profiles.Opt[N]{Value: N(bit(o.Value)), Valid: o.Valid}
}

// named is the number of a name that the profile gives.
func named[N any](o profiles.Opt[string], numbers table[string, N]) profiles.Opt[N] {
	n, known := numbers.Find(o.Value)
	return profiles.Opt[N]{Value: n, Valid: o.Valid && known}
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// less is a - b, but at least 0.
func less(a, b uint64) uint64 { return a - min(a, b) }

// text writes s into a C string and fills the rest with 0. It cuts off what does not fit.
func text[B ~uint8](to []B, s string) {
	clear(to)
	for i := range min(len(s), len(to)-1) {
		to[i] = B(s[i])
	}
}

// table is a table of words or numbers.
type table[K comparable, V any] = words.Table[K, V]
