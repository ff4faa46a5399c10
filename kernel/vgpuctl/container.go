package vgpuctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Grant is the part of one GPU that a container may use.
type Grant struct {
	Minor  Minor  `json:"minor"`
	Limits Limits `json:"limits"`
}

// ApplyToCgroup sets one policy for each grant on the cgroup with this folder, and replaces earlier policies for the
// same minors. It waits for the folder until ctx is done. It returns the cgroup's id, which Revoke needs. If it fails,
// it restores the earlier policies. It may be repeated.
//
// The kernel removes the policies with the cgroup. If the cgroup is removed and made again while its policies are being
// set, the new cgroup gets them.
func (d *Device) ApplyToCgroup(ctx context.Context, path string, grants []Grant) (id uint64, err error) {
	return d.apply(ctx, grants, func() (uint64, error) { return CgroupID(path) })
}

// ApplyToContainer is ApplyToCgroup for the cgroup of a container's first process, pid. A runtime may start the process
// in its own cgroup and move it later. So ApplyToContainer waits while the process is in this program's cgroup or in
// one above it.
func (d *Device) ApplyToContainer(ctx context.Context, pid int, grants []Grant) (id uint64, err error) {
	return d.apply(ctx, grants, func() (uint64, error) { return containerCgroup(pid) })
}

// Revoke removes the policies of grants from a cgroup that stays. A policy that does not exist is no error.
func (d *Device) Revoke(id uint64, grants []Grant) error {
	var failed []error
	for _, g := range grants {
		if err := d.ClearCgroupPolicy(id, g.Minor); !gone(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// errNotYet means that the process is not in its container's cgroup yet.
var errNotYet = errors.New("it is still in the cgroup of this program or one above it")

func containerCgroup(pid int) (uint64, error) {
	path, err := CgroupOfPID(pid)
	if err != nil {
		return 0, err
	}
	own, err := CgroupOfPID(os.Getpid())
	if err != nil {
		return 0, err
	}
	if contains(path, own) {
		return 0, &Error{fmt.Sprintf("find the container's cgroup of process %d in %q", pid, path), errNotYet,
			"call when the runtime has moved the process, and from outside of the container"}
	}
	return CgroupID(path)
}

// contains reports whether a cgroup's folder is the other one or above it.
func contains(above, below string) bool {
	return strings.HasPrefix(below+"/", strings.TrimSuffix(above, "/")+"/")
}

// gone reports whether an error says that a cgroup or a policy does not exist.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// pause is the time between two attempts of apply.
const pause = 5 * time.Millisecond

// errMoved means that another cgroup has replaced the one whose policies were set.
var errMoved = errors.New("it was replaced by another one meanwhile")

// apply sets the policies of the cgroup that find returns. It waits for a folder that does not exist yet and for a
// process that has not been moved yet.
func (d *Device) apply(ctx context.Context, grants []Grant, find func() (uint64, error)) (uint64, error) {
	if err := checkGrants(grants); err != nil {
		return 0, err
	}
	for {
		id, err := d.tryApply(grants, find)
		if err == nil {
			return id, nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, errNotYet) && !errors.Is(err, errMoved) {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// tryApply sets the policies, and then checks that find still returns the same cgroup.
func (d *Device) tryApply(grants []Grant, find func() (uint64, error)) (uint64, error) {
	id, err := find()
	if err != nil {
		return 0, err
	}
	undo, err := d.replace(id, grants)
	if err == nil {
		var now uint64
		if now, err = find(); err == nil && now != id {
			err = &Error{fmt.Sprintf("set the policies of cgroup %d", id), errMoved, "try again"}
		}
	}
	if err != nil {
		for _, step := range slices.Backward(undo) {
			if failed := step(); failed != nil && !gone(failed) {
				err = errors.Join(err, failed)
			}
		}
		return 0, err
	}
	return id, nil
}

func checkGrants(grants []Grant) error {
	for i, g := range grants {
		op := fmt.Sprintf("grant %s", gpu(g.Minor))
		if slices.ContainsFunc(grants[:i], func(h Grant) bool { return h.Minor == g.Minor }) {
			return &Error{op, invalid("it is granted twice"), "name each GPU once"}
		}
		if err := g.Limits.check(op, g.Minor); err != nil {
			return err
		}
	}
	return nil
}

// replace sets policies until one fails. The steps that it returns undo them, if they are run from the last to the
// first.
func (d *Device) replace(id uint64, grants []Grant) (undo []func() error, err error) {
	for _, g := range grants {
		before, err := d.GetCgroupPolicy(id, g.Minor)
		if err != nil && !gone(err) {
			return undo, err
		}
		step := func() error { return d.SetCgroupPolicy(id, g.Minor, before) }
		if err != nil {
			step = func() error { return d.ClearCgroupPolicy(id, g.Minor) }
		}
		if err := d.SetCgroupPolicy(id, g.Minor, g.Limits); err != nil {
			return undo, err
		}
		undo = append(undo, step)
	}
	return undo, nil
}
