package model

import (
	"regexp"
	"slices"
	"strings"
)

// These are the subjects that the comment on a prototype can mention. A model keeps nothing else of the comments, since
// they are NVIDIA's text.
const (
	MentionsAdmin        = "admin"         // root, administrators or privileges
	MentionsNoPermission = "NO_PERMISSION" // as one of the answers
	MentionsMIG          = "MIG"
	// MentionsLost is noted only for functions that take no device, since all others answer GPU_IS_LOST for a lost GPU
	// anyway.
	MentionsLost = "GPU_IS_LOST"
)

var mentions = []struct {
	word    string
	pattern *regexp.Regexp
}{
	{MentionsAdmin, regexp.MustCompile(`(?i)\b(root|admin|administrator|privileged?|privileges)\b`)},
	{MentionsNoPermission, regexp.MustCompile(`ERROR_NO_PERMIS+ION`)},
	{MentionsMIG, regexp.MustCompile(`\bMIG\b`)},
	{MentionsLost, regexp.MustCompile(`ERROR_GPU_IS_LOST`)},
}

var comment = regexp.MustCompile(`(?s)/\*.*?\*/`)

var declared = regexp.MustCompile(`^[^;{}]*DECLDIR[ *a-z]*?\s(nvml\w+)\s*\(`)

// mention notes for every function which subjects the comment on its prototype mentions.
func (h *Header) mention(text []byte) {
	for _, at := range comment.FindAllIndex(text, -1) {
		name := declared.FindSubmatch(text[at[1]:])
		if name == nil {
			continue
		}
		f := h.Function(string(name[1]))
		if f == nil {
			continue
		}
		f.Mentions = nil // an earlier comment belongs to something else
		for _, about := range mentions {
			if about.pattern.Match(text[at[0]:at[1]]) && !(about.word == MentionsLost && f.TakesDevice()) {
				f.Mentions = append(f.Mentions, about.word)
			}
		}
	}
}

// TakesDevice reports whether a caller passes f a device handle.
func (f *Function) TakesDevice() bool {
	return slices.ContainsFunc(f.Params, func(p Param) bool { return p.Type.Equal(CType{Name: "nvmlDevice_t"}) })
}

var versionSuffix = regexp.MustCompile(`_v\d+$`)

// Family is a function's name without the number of its version.
func Family(name string) string { return versionSuffix.ReplaceAllString(name, "") }

var word = regexp.MustCompile(`[A-Z][a-z]+`)

// Words are the words of a function's name after nvml: Device, Get, Name.
func Words(name string) []string { return word.FindAllString(strings.TrimPrefix(name, "nvml"), -1) }
