package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
)

type eventsCmd struct {
	Send eventsSendCmd `cmd:"" help:"Send an event to every program that waits for it."`
	Tail eventsTailCmd `cmd:"" help:"Print the newest events."`
}

type eventsSendCmd struct {
	nodeFlags
	gpuFlag
	Event string  `arg:"" help:"The event, as below."`
	Data  *uint64 `arg:"" optional:"" help:"The event's data, such as the number of an Xid."`
}

func (eventsSendCmd) Help() string {
	var names []string
	for _, k := range change.EventKinds {
		names = append(names, k.Name)
	}
	return `Programs that wait in nvmlEventSetWait for events of that type and GPU wake up. Nothing else about the GPU changes; nvmlfab
fail changes the GPU too. Examples:

    nvmlfab events send --gpu 3 xid 79
    nvmlfab events send --gpu all clock

The events are ` + strings.Join(names, ", ") + `. The last two are
system events: the driver lets the GPU go, or takes it.

` + whichNode
}

func (c eventsSendCmd) Run() error {
	kind, err := change.EventKindOf(c.Event)
	if err == nil {
		err = kind.Check(c.Data)
	}
	if err != nil {
		return err
	}
	var data uint64
	if c.Data != nil {
		data = *c.Data
	}
	if len(c.GPU) == 0 {
		return errors.New("say which GPU sends it with --gpu, such as --gpu 3 or --gpu all")
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	list, err := n.gpus(c.GPU)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		for _, i := range list {
			t.Send(i, kind, data)
		}
		return nil
	})
}

type eventsTailCmd struct {
	nodeFlags
	Lines  uint32 `short:"n" default:"10" placeholder:"N" help:"How many events that are there already are printed; 10 by default."`
	Follow bool   `short:"f" help:"Go on with new events as they happen, until interrupted."`
	Output string `short:"o" enum:"text,json" default:"text" help:"Print lines for people, or json, an object a line, for programs."`
}

func (eventsTailCmd) Help() string {
	return `The node keeps its newest 1,024 events. Examples:

    nvmlfab events tail
    nvmlfab events tail --follow --output json

` + whichNode
}

// event is an event as it is printed for programs.
type event struct {
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	GPU      *uint32   `json:"gpu,omitempty"`
	UUID     string    `json:"uuid,omitempty"`
	Event    string    `json:"event"`
	Type     uint64    `json:"type"`
	Data     uint64    `json:"data"`
}

func (c eventsTailCmd) Run() error {
	n, err := c.open(false)
	if err != nil {
		return err
	}
	interrupted := make(chan os.Signal, 1)
	if c.Follow {
		signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	}
	follower := n.dir.Follow()
	_, number := follower.Look()
	if err := n.read(); err != nil {
		return err
	}
	var seen uint64
	if s := n.source.State; s != nil {
		seen = s.Sequence - min(s.Sequence, uint64(c.Lines))
		if len(s.Events) > int(min(c.Lines, math.MaxInt32)) {
			seen = s.Events[len(s.Events)-int(c.Lines)-1].Sequence
		}
	}
	for began := time.Now(); ; {
		if seen, err = c.print(n, seen); err != nil || !c.Follow {
			return err
		}
		for {
			clock := time.Since(began).Milliseconds()
			follower.Seen(number, clock+state.Tick.Milliseconds())
			for !follower.Stale(time.Since(began).Milliseconds()) {
				select {
				case <-interrupted:
					return nil
				case <-time.After(10 * time.Millisecond):
				}
			}
			var changed bool
			if changed, number = follower.Look(); changed {
				break
			}
		}
		if err := n.read(); err != nil {
			return err
		}
	}
}

// print prints the events after one, and returns the number of the last.
func (c eventsTailCmd) print(n *node, seen uint64) (uint64, error) {
	if n.source.State == nil {
		return seen, nil
	}
	for _, e := range n.source.State.Events {
		if e.Sequence <= seen {
			continue
		}
		seen = e.Sequence
		out := event{Sequence: e.Sequence, Time: time.UnixMilli(e.Time).UTC(), UUID: string(e.Device),
			Event: change.EventName(e), Type: e.Type, Data: e.Data}
		for i := range n.source.Board.Devices {
			if d := &n.source.Board.Devices[i]; d.UUID == e.Device {
				out.GPU = &d.Index
			}
		}
		if err := c.line(out); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func (c eventsTailCmd) line(e event) error {
	if c.Output == "json" {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = fmt.Printf("%s\n", text)
		return err
	}
	gpu := "node"
	if e.GPU != nil {
		gpu = fmt.Sprintf("GPU %d", *e.GPU)
	} else if e.UUID != "" {
		gpu = e.UUID
	}
	_, err := fmt.Printf("%s  %s  %s %d\n", e.Time.Local().Format("2006-01-02 15:04:05.000"), gpu, e.Event, e.Data)
	return err
}
