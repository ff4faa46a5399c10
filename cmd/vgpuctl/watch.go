package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
)

type watchCmd struct {
	target
	Type  []eventType `placeholder:"TYPE" help:"Only events of these types: open, close, alloc, free, dup, control, deny, timeslice, exit, race, cgroup-gone."`
	Count uint64      `placeholder:"N" help:"End after so many."`
}

type eventType vgpuctl.EventType

func (t *eventType) UnmarshalText(text []byte) error {
	kind, err := vgpuctl.ParseEventType(string(text))
	*t = eventType(kind)
	return err
}

func (watchCmd) Help() string {
	return `It prints an event in each line, until it is interrupted. Process numbers are those of the initial PID namespace. Where events
were lost since they came too fast, a line says how many; with --json that is the field lost of the next event that is
printed. Examples:

    vgpuctl watch --type deny,timeslice
    vgpuctl watch --json --count 1 --pid 1234`
}

// watched is an event as JSON.
type watched struct {
	vgpuctl.Event
	Lost uint64 `json:"lost,omitempty"`
}

func (c watchCmd) Run(s *surroundings) error {
	cgroup, err := c.resolve(s)
	if err != nil {
		return err
	}
	wanted := func(e vgpuctl.Event) bool {
		return (c.PID == 0 || e.Tgid == c.PID) && (cgroup == 0 || e.CgroupID == cgroup) &&
			(len(c.Type) == 0 || slices.Contains(c.Type, eventType(e.Type)))
	}
	ctx, cancel := s.interrupted()
	defer cancel()
	return s.with(func(d *vgpuctl.Device) error {
		events, encoder := d.Events(), json.NewEncoder(s.stdout)
		encoder.SetEscapeHTML(false)
		var missed uint64 // since the last printed event
		for n := uint64(0); c.Count == 0 || n < c.Count; {
			e, lost, err := events.Next(ctx)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			if missed += lost; lost > 0 && !s.json {
				if _, err := fmt.Fprintf(s.stdout, "%d events were lost here: they came faster than they were read\n", lost); err != nil {
					return err
				}
			}
			if !wanted(e) {
				continue
			}
			n++
			if s.json {
				err = encoder.Encode(watched{e, missed})
			} else {
				err = writeEvent(s.stdout, e)
			}
			if err != nil {
				return err
			}
			missed = 0
		}
		return nil
	})
}

// writeEvent prints a line: time since the boot, type, program and process, and what else is known.
func writeEvent(w io.Writer, e vgpuctl.Event) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d.%06d %-9s %s[%d] gpu=%s", e.TimeNs/1e9, e.TimeNs%1e9/1e3, e.Type, plain(e.Comm.String()), e.Tgid, e.Minor)
	size, us := vgpuctl.FormatSize, vgpuctl.FormatTimeslice
	switch e.Type {
	case vgpuctl.EventAlloc, vgpuctl.EventFree:
		if e.Value != 0 {
			fmt.Fprintf(&b, " bytes=%s", size(e.Value))
		}
	case vgpuctl.EventDeny:
		fmt.Fprintf(&b, " asked=%s limit=%s", size(e.Value), size(e.Detail))
	case vgpuctl.EventTimeslice:
		fmt.Fprintf(&b, " asked=%s got=%s", us(e.Value), us(e.Detail))
	case vgpuctl.EventExit:
		fmt.Fprintf(&b, " held=%s", size(e.Value))
	case vgpuctl.EventRace:
		fmt.Fprintf(&b, " checked=%#x found=%#x", e.Value, e.Detail)
	default:
		if e.Value != 0 || e.Detail != 0 {
			fmt.Fprintf(&b, " value=%d detail=%d", e.Value, e.Detail)
		}
	}
	if e.Scope != vgpuctl.ScopeNone {
		fmt.Fprintf(&b, " scope=%s", e.Scope)
	}
	if e.CgroupID != 0 {
		fmt.Fprintf(&b, " cgroup=%d", e.CgroupID)
	}
	for _, field := range []struct {
		name  string
		value uint32
	}{{"client", e.Client}, {"object", e.Object}, {"code", e.Code}, {"status", e.Status}} {
		if field.value != 0 {
			fmt.Fprintf(&b, " %s=%#x", field.name, field.value)
		}
	}
	for _, flag := range e.Flags.Names() {
		b.WriteString(" " + flag)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// plain returns a program's name, quoted if it has unprintable characters, since a program can choose its name.
func plain(comm string) string {
	odd := func(r rune) bool {
		return r == unicode.ReplacementChar || !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`"[]\`, r)
	}
	if comm == "" || strings.ContainsFunc(comm, odd) {
		return strconv.QuoteToASCII(comm)
	}
	return comm
}
