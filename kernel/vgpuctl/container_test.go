package vgpuctl_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl/vgputest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var grants = []vgpuctl.Grant{
	{Minor: 0, Limits: vgpuctl.Limits{MemoryLimitBytes: 8 << 30, Weight: 3}},
	{Minor: 1, Limits: vgpuctl.Limits{MemoryLimitBytes: 4 << 30, Weight: 1}},
	{Minor: vgpuctl.MinorAny, Limits: vgpuctl.Limits{Weight: 1, Flags: vgpuctl.LimitDryRun}},
}

func policies(id uint64, grants ...vgpuctl.Grant) (all []vgpuctl.CgroupPolicy) {
	for _, g := range grants {
		all = append(all, vgpuctl.CgroupPolicy{CgroupID: id, Minor: g.Minor, Limits: g.Limits})
	}
	return all
}

// finds returns a function that returns these ids and errors one after the other, and then the last one again and
// again.
func finds(found ...any) func() (uint64, error) {
	return func() (uint64, error) {
		now := found[0]
		if len(found) > 1 {
			found = found[1:]
		}
		if err, ok := now.(error); ok {
			return 0, err
		}
		return uint64(now.(int)), nil
	}
}

// on makes the n-th request of a kind fail.
func on(kind uint32, n int, errno unix.Errno) func(uint32) unix.Errno {
	return func(request uint32) unix.Errno {
		if request == kind {
			if n--; n == 0 {
				return errno
			}
		}
		return 0
	}
}

func TestApply(t *testing.T) {
	missing := &vgpuctl.Error{Op: "find", Err: unix.ENOENT}
	old := vgpuctl.Grant{Minor: 1, Limits: vgpuctl.Limits{Weight: 9}}
	other := vgpuctl.Grant{Minor: 7, Limits: vgpuctl.Limits{Weight: 7}}
	for name, test := range map[string]struct {
		find func() (uint64, error)
		fail func(uint32) unix.Errno
		want []vgpuctl.CgroupPolicy // without "other", of cgroup 5
		err  error
	}{
		"all":                   {find: finds(5), want: policies(5, grants...)},
		"waits for the folder":  {find: finds(missing, missing, 5), want: policies(5, grants...)},
		"waits for the process": {find: finds(vgpuctl.ErrNotYet, 5), want: policies(5, grants...)},
		"made anew meanwhile":   {find: finds(5, 6, 6), want: append(policies(6, grants...), policies(5, old)...)},
		"gone meanwhile":        {find: finds(5, missing, 6), want: append(policies(6, grants...), policies(5, old)...)},
		"gone between two":      {find: finds(5), fail: on(vgpuctl.IoctlSetCgroupPolicy, 2, unix.ENOENT), want: policies(5, grants...)},
		"first fails":           {find: finds(5), fail: on(vgpuctl.IoctlSetCgroupPolicy, 1, unix.ENOSPC), want: policies(5, old), err: unix.ENOSPC},
		"last fails":            {find: finds(5), fail: on(vgpuctl.IoctlSetCgroupPolicy, 3, unix.ENOSPC), want: policies(5, old), err: unix.ENOSPC},
		"cannot look":           {find: finds(5), fail: on(vgpuctl.IoctlGetCgroupPolicy, 2, unix.EPERM), want: policies(5, old), err: unix.EPERM},
		"never there":           {find: finds(missing), want: policies(5, old), err: unix.ENOENT},
		"goes and stays away":   {find: finds(5, missing), want: policies(5, old), err: unix.ENOENT},
		"process ends":          {find: finds(5, unix.ESRCH), want: policies(5, old), err: unix.ESRCH},
		"not cgroup2":           {find: finds(vgpuctl.ErrNotCgroup2), want: policies(5, old), err: vgpuctl.ErrNotCgroup2},
	} {
		t.Run(name, func(t *testing.T) {
			m := vgputest.New()
			d := m.Open()
			require.NoError(t, d.SetCgroupPolicy(5, old.Minor, old.Limits))
			require.NoError(t, d.SetCgroupPolicy(5, other.Minor, other.Limits))
			m.Fail = test.fail
			limit := time.Minute // so that a hang ends
			if test.err == unix.ENOENT {
				limit = 500 * time.Millisecond // apply waits for that long
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			id, err := vgpuctl.Apply(d, ctx, grants, test.find)
			if test.err == nil {
				require.NoError(t, err)
				assert.Equal(t, test.want[0].CgroupID, id)
			} else {
				assert.ErrorIs(t, err, test.err)
				assert.Zero(t, id)
				assert.Equal(t, test.err == unix.ENOENT, errors.Is(err, context.DeadlineExceeded))
			}
			assert.ElementsMatch(t, append(test.want, policies(5, other)...), m.CgroupPolicies())

			if test.err == nil { // as a restarted plugin does; then the policies are revoked
				m.Fail = nil
				_, err = vgpuctl.Apply(d, ctx, grants, finds(int(id)))
				require.NoError(t, err)
				assert.ElementsMatch(t, append(test.want, policies(5, other)...), m.CgroupPolicies())
				require.NoError(t, d.Revoke(id, grants))
				require.NoError(t, d.Revoke(id, grants))
				_, err = d.GetCgroupPolicy(id, 1)
				assert.ErrorIs(t, err, unix.ENOENT)
			}
		})
	}
}

// TestApplyCannotUndo: if undoing fails too, the error has both errors.
func TestApplyCannotUndo(t *testing.T) {
	m := vgputest.New()
	full := on(vgpuctl.IoctlSetCgroupPolicy, 3, unix.ENOSPC)
	m.Fail = func(request uint32) unix.Errno {
		if request == vgpuctl.IoctlClearCgroupPolicy {
			return unix.EIO
		}
		return full(request)
	}
	_, err := vgpuctl.Apply(m.Open(), t.Context(), grants, finds(5))
	assert.ErrorIs(t, err, unix.ENOSPC)
	assert.ErrorIs(t, err, unix.EIO)
	assert.ElementsMatch(t, policies(5, grants[:2]...), m.CgroupPolicies())
}

func TestApplyRefuses(t *testing.T) {
	m := vgputest.New()
	m.Fail = func(request uint32) unix.Errno { t.Errorf("request %#x reached the module", request); return 0 }
	twice := append(grants[:2:2], grants[0])
	_, err := m.Open().ApplyToCgroup(t.Context(), t.TempDir(), twice)
	assert.EqualError(t, err, "cannot grant GPU 0: it is granted twice: name each GPU once")
	_, err = m.Open().ApplyToCgroup(t.Context(), t.TempDir(), []vgpuctl.Grant{grants[0], {Minor: 3, Limits: vgpuctl.Limits{Weight: 20000}}})
	assert.EqualError(t, err, "cannot grant GPU 3: the weight is 20000: want at most 10000")
	_, err = m.Open().ApplyToCgroup(t.Context(), t.TempDir(), grants)
	assert.ErrorIs(t, err, vgpuctl.ErrNotCgroup2)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = m.Open().ApplyToCgroup(ctx, filepath.Join(t.TempDir(), "never"), grants)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "never")
	_, err = m.Open().ApplyToContainer(t.Context(), 1<<30, grants)
	assert.ErrorIs(t, err, unix.ESRCH)
	_, err = m.Open().ApplyToContainer(ctx, os.Getpid(), grants)
	assert.Error(t, err)
}
