package profiles

import (
	"strconv"
	"unicode/utf8"
)

// maxQuoted is how many characters of a value a message shows. The file that a variable names may be anybody's, and messages
// go where logs do.
const maxQuoted = 60

// quote writes the beginning of a value between quotes.
func quote[T ~string | ~[]byte](value T) string { return `"` + short(string(value)) + `"` }

// short is the beginning of a value, in printable characters.
func short(value string) string {
	var out string
	for length := 0; value != ""; {
		_, size := utf8.DecodeRuneInString(value)
		next := strconv.Quote(value[:size])
		next = next[1 : len(next)-1]
		if length += utf8.RuneCountInString(next); length > maxQuoted {
			return out + "…"
		}
		out, value = out+next, value[size:]
	}
	return out
}
