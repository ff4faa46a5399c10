package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// table is a file of the module in debugfs: lines of columns. The first line names the columns.
type table struct {
	columns []string
	rows    [][]string
}

// tables prints files of the module in debugfs.
func (s *surroundings) tables(names ...string) error {
	var all []table
	paths := s.cgroupPaths()
	for _, name := range names {
		t, err := readTable(filepath.Join(s.debugfs, name))
		if err != nil {
			return err
		}
		t.namePaths(paths)
		all = append(all, t)
	}
	object := map[string]any{}
	for i, t := range all {
		object[names[i]] = t.objects()
	}
	return s.print(object, func(w io.Writer) error {
		for i, t := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, names[i])
			if err := t.write(w); err != nil {
				return err
			}
		}
		return nil
	})
}

func readTable(path string) (table, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return table{}, fmt.Errorf("%w: load the module with make -C kernel load, and mount -t debugfs none /sys/kernel/debug", err)
	case errors.Is(err, fs.ErrPermission):
		return table{}, fmt.Errorf("%w: run this as root", err)
	case err != nil:
		return table{}, err
	}
	var t table
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case t.columns == nil:
			t.columns = fields
		case len(fields) != len(t.columns):
			return table{}, fmt.Errorf("%s: %q has %d columns, want %d: use the vgpuctl of the module's release", path, strings.TrimSpace(line), len(fields), len(t.columns))
		default:
			t.rows = append(t.rows, fields)
		}
	}
	if t.columns == nil {
		return table{}, fmt.Errorf("%s has no line with the names of its columns: use the vgpuctl of the module's release", path)
	}
	return t, nil
}

// namePaths adds the folders of cgroups to their ids, if the folders are visible.
func (t *table) namePaths(paths map[uint64]string) {
	for i, name := range t.columns {
		if name != "cgroup_id" {
			continue
		}
		t.columns = append(t.columns, "cgroup")
		for r, row := range t.rows {
			path := "-"
			if id, err := strconv.ParseUint(row[i], 10, 64); err == nil && paths[id] != "" {
				path = paths[id]
			}
			t.rows[r] = append(row, path)
		}
		return
	}
}

// objects are the rows as JSON objects. Decimal numbers in the file become JSON numbers.
func (t table) objects() []map[string]any {
	list := []map[string]any{}
	for _, row := range t.rows {
		object := map[string]any{}
		for i, name := range t.columns {
			object[name] = row[i]
			if n, err := strconv.ParseUint(row[i], 10, 64); err == nil {
				object[name] = json.Number(strconv.FormatUint(n, 10))
			}
		}
		list = append(list, object)
	}
	return list
}

func (t table) write(w io.Writer) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tabs, strings.ToUpper(strings.Join(t.columns, "\t")))
	for _, row := range t.rows {
		fmt.Fprintln(tabs, strings.Join(row, "\t"))
	}
	return tabs.Flush()
}
