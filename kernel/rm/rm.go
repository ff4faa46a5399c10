// Package rm makes a few calls of NVIDIA's driver, as NVIDIA's libraries make them: it allocates memory of a GPU and sets
// the timeslice of a channel group. vgpuctl verify uses it to try policies. It needs no library of NVIDIA's.
// Structures and numbers are those of kernel/uapi/nvrm.h.
package rm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Status is an answer of the driver's.
type Status uint32

// The answers that a policy causes.
const (
	OK           Status = 0
	NoMemory     Status = 0x51
	NotSupported Status = 0x56
)

// Error is a call that the driver refused.
type Error struct {
	Call   string
	Status Status
}

func (e *Error) Error() string {
	return fmt.Sprintf("the driver refused %s with status %#x", e.Call, uint32(e.Status))
}

const (
	escFree, escControl, escAlloc, escCardInfo, escRegisterFD = 0x29, 0x2a, 0x2b, 200, 201

	classMemory, classClient, classDevice, classSubdevice, classGroup = 0x40, 0x41, 0x80, 0x2080, 0xa06c

	getIDInfo, setTimeslice, getTimeslice = 0x205, 0xa06c0103, 0xa06c0104
)

type (
	free    struct{ Root, Parent, Object, Status uint32 }
	control struct {
		Client, Object, Command, Flags uint32
		Params                         uint64
		ParamsSize, Status             uint32
	}
	alloc struct {
		Root, Parent, Object, Class uint32
		Params, Rights              uint64
		ParamsSize, Flags, Status   uint32
		_                           uint32
	}
	card struct {
		Valid                 uint8
		_                     [3]byte
		Domain                uint32
		Bus, Slot, Function   uint8
		_                     uint8
		Vendor, Device        uint16
		ID                    uint32
		Interrupt             uint16
		_                     uint16
		Registers, Registers2 uint64
		Frame, Frame2         uint64
		Minor                 uint32
		Name                  [10]byte
		_                     [2]byte
	}
	idInfo       struct{ ID, Flags, Instance, Subdevice, SLI, Board, GPUInstance, NUMA uint32 }
	deviceParams struct {
		ID, Share, Target, TargetDevice, Flags, _ uint32
		Space, Start, Limit                       uint64
		Mode, _                                   uint32
	}
	memoryParams struct {
		Owner, Type, Flags, Width, Height, Pitch, Attr, Attr2, Format, Coverage, ZCull, _ uint32
		RangeLow, RangeHigh, Size, Alignment, Offset, Limit, Address                      uint64
		Tag, Space, Internal, Owner2, NUMA, _                                             uint32
	}
	groupParams struct {
		Error, ECCError, Space, Engine uint32
		_                              uint32
	}
)

// Client is a client of the driver's on one GPU. It may be used by one goroutine at a time.
type Client struct {
	ctl, gpu       int
	page           []byte // the arguments: the structure at 0, its parameters at paramsAt
	client, device uint32
}

const paramsAt = 3072

// Open makes a client on the GPU of /dev/nvidiaN. Its memory is freed by Close, and when the process ends.
func Open(minor uint32) (*Client, error) {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory for arguments: %w", err)
	}
	c := &Client{ctl: -1, gpu: -1, page: page}
	if err := c.start(minor); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Client) start(minor uint32) (err error) {
	if c.ctl, err = open("/dev/nvidiactl"); err != nil {
		return err
	}
	var cards [32]card
	if err := c.call(c.ctl, escCardInfo, &cards); err != nil {
		return fmt.Errorf("ask the driver for its GPUs: %w", err)
	}
	id := uint32(0)
	for _, card := range cards {
		if card.Valid != 0 && card.Minor == minor {
			id = card.ID
		}
	}
	if id == 0 {
		return fmt.Errorf("the driver has no GPU /dev/nvidia%d", minor)
	}
	if c.gpu, err = open(fmt.Sprintf("/dev/nvidia%d", minor)); err != nil {
		return err
	}
	ctl := int32(c.ctl)
	if err := c.call(c.gpu, escRegisterFD, &ctl); err != nil {
		return fmt.Errorf("connect /dev/nvidia%d with /dev/nvidiactl: %w", minor, err)
	}
	if c.client, err = c.alloc(0, classClient, nil); err != nil {
		return err
	}
	info := idInfo{ID: id}
	if err := c.control("the number of the GPU", c.client, getIDInfo, &info); err != nil {
		return err
	}
	if c.device, err = c.alloc(c.client, classDevice, &deviceParams{ID: info.Instance}); err != nil {
		return err
	}
	_, err = c.alloc(c.device, classSubdevice, new(uint32))
	return err
}

// Close frees all that the client has.
func (c *Client) Close() error {
	var errs []error
	for _, fd := range []int{c.gpu, c.ctl} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(append(errs, unix.Munmap(c.page))...)
}

// Memory allocates memory of the GPU and returns how much the driver took, which may be more than was asked for. The
// error is an *Error if the driver, or a policy, refused it.
func (c *Client) Memory(size uint64) (taken uint64, err error) {
	params := memoryParams{Size: size}
	_, err = c.alloc(c.device, classMemory, &params)
	return params.Size, err
}

// Timeslice sets the timeslice of a new channel group, in microseconds, and returns the one that the driver has then.
func (c *Client) Timeslice(us uint64) (now uint64, err error) {
	const graphics = 1
	group, err := c.alloc(c.device, classGroup, &groupParams{Engine: graphics})
	if err != nil {
		return 0, err
	}
	if err := c.control("a timeslice", group, setTimeslice, &us); err != nil {
		return 0, err
	}
	if err := c.control("the timeslice", group, getTimeslice, &now); err != nil {
		return 0, err
	}
	call := free{Root: c.client, Object: group}
	if err := c.call(c.ctl, escFree, &call); err != nil {
		return 0, fmt.Errorf("free the channel group: %w", err)
	}
	return now, nil
}

func (c *Client) alloc(parent, class uint32, params any) (object uint32, err error) {
	call := alloc{Root: c.client, Parent: parent, Class: class}
	if params != nil {
		call.Params, call.ParamsSize = c.place(params)
	}
	if err := c.call(c.ctl, escAlloc, &call); err != nil {
		return 0, fmt.Errorf("make an object of class %#x: %w", class, err)
	}
	if params != nil {
		c.take(params)
	}
	if call.Status != 0 {
		return 0, &Error{fmt.Sprintf("an object of class %#x", class), Status(call.Status)}
	}
	return call.Object, nil
}

func (c *Client) control(what string, object, command uint32, params any) error {
	call := control{Client: c.client, Object: object, Command: command}
	call.Params, call.ParamsSize = c.place(params)
	if err := c.call(c.ctl, escControl, &call); err != nil {
		return fmt.Errorf("control %#x: %w", command, err)
	}
	c.take(params)
	if call.Status != 0 {
		return &Error{what, Status(call.Status)}
	}
	return nil
}

func (c *Client) place(params any) (at uint64, size uint32) {
	encode(c.page[paramsAt:], params)
	return address(c.page) + paramsAt, uint32(binary.Size(params))
}

func (c *Client) take(params any) { decode(c.page[paramsAt:], params) }

// call makes the call with a structure, which the driver may change.
func (c *Client) call(fd int, number uintptr, v any) error {
	encode(c.page, v)
	const readWrite = 3
	err := ioctl(fd, readWrite<<30|uintptr(binary.Size(v))<<16|'F'<<8|number, c.page)
	decode(c.page, v)
	return err
}

// encode and decode cannot fail: all structures have a fixed size and fit the page.
func encode(to []byte, v any) {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, v)
	copy(to, b.Bytes())
}

func decode(from []byte, v any) { _, _ = binary.Decode(from, binary.LittleEndian, v) }

func open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
