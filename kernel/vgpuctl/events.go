package vgpuctl

import (
	"context"
	"fmt"
	"io"
)

// Events reads the events that come after the device was opened. An open device has one stream of events, so a second
// reader must open the device again. Only one goroutine may use it at a time.
type Events struct {
	device *Device
	buffer []Event
	unread []Event // the part of buffer that was read from the device and not yet returned
	next   uint64  // the sequence of the next event
	any    bool    // whether an event has been returned
}

// Events returns the device's stream of events. It reads up to 256 events at a time.
func (d *Device) Events() *Events { return &Events{device: d, buffer: make([]Event, 256)} }

// Next returns the next event, and how many events before it were lost because the reader was too slow. It waits until
// ctx is done, and then returns ctx.Err().
func (e *Events) Next(ctx context.Context) (event Event, lost uint64, err error) {
	if err := ctx.Err(); err != nil {
		return Event{}, 0, err
	}
	if len(e.unread) == 0 {
		if err := e.read(ctx); err != nil {
			return Event{}, 0, err
		}
	}
	event, e.unread = e.unread[0], e.unread[1:]
	if e.any && event.Sequence > e.next {
		lost = event.Sequence - e.next
	}
	e.next, e.any = event.Sequence+1, true
	return event, lost, nil
}

func (e *Events) read(ctx context.Context) error {
	n, err := e.device.driver.Read(ctx, eventBytes(e.buffer))
	switch {
	case ctx.Err() != nil && err != nil:
		return ctx.Err()
	case err != nil && err != io.EOF:
		return explain("read events", reading, err)
	case n == 0 || n%int(eventSize) != 0:
		return &Error{"read events", fmt.Errorf("got %d bytes, want a multiple of %d", n, eventSize), strange}
	}
	e.unread = e.buffer[:n/int(eventSize)]
	return nil
}
