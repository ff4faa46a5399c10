package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// summary is what the calls of a trace add up to.
type summary struct {
	Calls     uint64        `json:"calls"`
	Processes uint64        `json:"processes"`
	Lost      uint64        `json:"lost_lines,omitempty"`
	Functions []calledTimes `json:"functions"` // the most often called first

	lostWhy error
}

type calledTimes struct {
	Name        string            `json:"name"`
	Calls       uint64            `json:"calls"`
	Failed      uint64            `json:"failed"`
	Unfinished  uint64            `json:"unfinished,omitempty"`
	Nanoseconds uint64            `json:"ns"`
	Longest     uint64            `json:"longest_ns"`
	Stub        bool              `json:"stub,omitempty"`
	Results     map[string]uint64 `json:"results"`
}

// sum reads what has been counted.
func sum(path string) (*summary, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c counters
	if err := binary.Read(bytes.NewReader(text), binary.NativeEndian, &c); err != nil {
		return nil, err
	}
	out := &summary{Processes: c.Processes, Lost: c.Lost, lostWhy: syscall.Errno(c.Error), Functions: []calledTimes{}}
	names := make([]string, len(c.Entry))
	for i := range traceSlots {
		names[traceFunctions+i] = fmt.Sprintf("nvmlInternalSlot%d", i)
	}
	for _, s := range abi.Symbols() {
		names[traceIndex(s)] = s.Name
	}
	for i, e := range c.Entry {
		if e.Calls == 0 {
			continue
		}
		f := calledTimes{names[i], e.Calls, 0, e.Calls - min(e.Calls, e.Ended), e.Nanoseconds, e.Longest, e.Stub != 0, map[string]uint64{}}
		for code, n := range e.Codes {
			if n == 0 {
				continue
			}
			name := "other"
			if code < traceCodes-1 {
				name = returnName(code)
			}
			f.Results[name] = n
			if code != 0 {
				f.Failed += n
			}
		}
		out.Calls += e.Calls
		out.Functions = append(out.Functions, f)
	}
	slices.SortStableFunc(out.Functions, func(a, b calledTimes) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

func returnName(code int) string {
	if name := abi.ReturnName(abi.Return(code)); name != "" {
		return name
	}
	return fmt.Sprint(code)
}

// summarize writes the summary after the lines.
func (s *session) summarize() error {
	passed := s.relay.close()
	total, err := sum(filepath.Join(s.dir, sharedFile))
	if err != nil {
		return errors.Join(passed, err)
	}
	text := total.text()
	if s.json {
		line, err := json.Marshal(map[string]*summary{"summary": total})
		if err != nil {
			return err
		}
		text = append(line, '\n')
	}
	if _, err = s.output.Write(text); err != nil {
		err = fmt.Errorf("the summary: %w", err)
	} else if passed != nil {
		err = fmt.Errorf("lines of the trace: %w", passed)
	}
	if total.Lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d lines of the trace could not be written: %w", total.Lost, total.lostWhy))
	}
	return err
}

// text is the summary for people.
func (t *summary) text() []byte {
	var b bytes.Buffer
	if t.Calls == 0 {
		b.WriteString("\nno calls of NVML; nvmlfab doctor -- PROGRAM says which library a program loads\n")
		return b.Bytes()
	}
	fmt.Fprintf(&b, "\n%s of %s in %s\n\n", counted(t.Calls, "call"), counted(uint64(len(t.Functions)), "function"), processes(t.Processes))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "calls\tfailed\tseconds\tlongest\t  function\n")
	for _, f := range t.Functions {
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t  %s\n", f.Calls, f.Failed, inSeconds(f.Nanoseconds), inSeconds(f.Longest), f.Name)
	}
	w.Flush()
	list := func(title string, line func(f calledTimes) string) {
		for _, f := range t.Functions {
			if text := line(f); text != "" {
				if title != "" {
					fmt.Fprintf(&b, "\n%s\n", title)
					title = ""
				}
				fmt.Fprintf(&b, "  %s\n", text)
			}
		}
	}
	list("stubs, which only answer that they are not supported:", func(f calledTimes) string {
		if !f.Stub {
			return ""
		}
		return f.Name + " " + counted(f.Calls, "call")
	})
	list("failed, stubs apart:", func(f calledTimes) string {
		if f.Stub || f.Failed == 0 {
			return ""
		}
		var codes []string
		for name, n := range f.Results {
			if name != "NVML_SUCCESS" {
				codes = append(codes, fmt.Sprintf("%s %d", name, n))
			}
		}
		slices.Sort(codes)
		return f.Name + ": " + strings.Join(codes, ", ")
	})
	list("not finished, since their process ended first:", func(f calledTimes) string {
		if f.Unfinished == 0 {
			return ""
		}
		return f.Name + " " + counted(f.Unfinished, "call")
	})
	return b.Bytes()
}

func counted(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func processes(n uint64) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

func inSeconds(ns uint64) string { return fmt.Sprintf("%.6f", time.Duration(ns).Seconds()) }
