package regexp

import "sync"

// What follows is added to regexp.go.

// late has the compiled form of each expression of MustCompile that was used.
var late struct {
	sync.Mutex
	compiled map[*Regexp]*Regexp
}

// compiled is the compiled form of an expression. MustCompile has left it uncompiled, and nothing else does.
func (re *Regexp) compiled() *Regexp {
	if re.prog != nil {
		return re
	}
	late.Lock()
	defer late.Unlock()
	c := late.compiled[re]
	if c == nil {
		var err error
		if c, err = Compile(re.expr); err != nil {
			panic(err)
		}
		if late.compiled == nil {
			late.compiled = map[*Regexp]*Regexp{}
		}
		late.compiled[re] = c
	}
	return c
}
