package importer

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
)

// xml reads the output of nvidia-smi -q -x.
func (r *reader) xml(lines []string, at int) (next int, err error) {
	end := at
	for end < len(lines) && !strings.Contains(lines[end], "</nvidia_smi_log>") {
		end++
	}
	if end == len(lines) {
		return 0, r.wrong(len(lines), "the output is cut off: it has no </nvidia_smi_log>")
	}
	d := xml.NewDecoder(strings.NewReader(strings.Join(lines[at:end+1], "\n")))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // read has seen that it is UTF-8
	l := &log{file: r.file, line: at + 1}
	w := walk{reader: r, log: l}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		line, _ := d.InputPos()
		line += at
		if err != nil {
			text := err.Error()
			if e := (*xml.SyntaxError)(nil); errors.As(err, &e) {
				text, line = e.Msg, e.Line+at
			}
			return 0, r.wrong(line, "is not XML: %s", text)
		}
		switch t := token.(type) {
		case xml.StartElement:
			err = w.open(t, line)
		case xml.CharData:
			w.text.Write(t)
		case xml.EndElement:
			err = w.close(line)
		}
		if err != nil {
			return 0, err
		}
	}
	return end + 1, r.keep(l)
}

// walk follows the elements of the log.
type walk struct {
	*reader
	log  *log
	gpu  *gpu
	path []string // of the open elements, from nvidia_smi_log on
	leaf bool     // the innermost has no elements so far
	text strings.Builder
}

func (w *walk) open(t xml.StartElement, line int) error {
	name := t.Name.Local
	w.path = append(w.path, name)
	w.leaf = true
	w.text.Reset()
	switch {
	case len(w.path) > maxDepth:
		return w.wrong(line, "the elements are nested more than %d deep", maxDepth)
	case len(w.path) == 1 && name != "nvidia_smi_log":
		return w.wrong(line, "the outermost element is %s: want nvidia_smi_log", quoted(name))
	case len(w.path) == 2 && name == "gpu":
		if len(w.log.gpus) == maxGPUs {
			return w.wrong(line, "there are more than %d GPUs", maxGPUs)
		}
		w.gpu = &gpu{}
		for _, a := range t.Attr {
			if a.Name.Local == "id" {
				w.gpu.id = leaf{"id", strings.TrimSpace(a.Value), line}
			}
		}
		if w.gpu.id.value == "" {
			return w.wrong(line, "the GPU has no id")
		}
		w.log.gpus = append(w.log.gpus, w.gpu)
	case w.gpu == nil:
	case name == "process_info":
		w.gpu.processes = append(w.gpu.processes, nil)
	case name == "mig_device":
		w.gpu.instances = append(w.gpu.instances, nil)
	case name == "supported_mem_clock":
		w.gpu.supported = append(w.gpu.supported, memoryClock{})
	}
	return nil
}

// close takes the value of an element without elements.
func (w *walk) close(line int) error {
	path := w.path
	value := strings.Join(strings.Fields(w.text.String()), " ")
	isLeaf := w.leaf
	w.path, w.leaf = w.path[:len(path)-1], false
	w.text.Reset()
	if len(path) == 2 && path[1] == "gpu" {
		if isLeaf {
			return w.wrong(line, "the GPU has no values")
		}
		w.gpu = nil
		return nil
	}
	if !isLeaf {
		return nil
	}
	if w.gpu == nil {
		w.top(leaf{strings.Join(path[1:], "/"), value, line})
		return nil
	}
	l := leaf{current(strings.Join(path[2:], "/")), value, line}
	switch list := path[max(len(path)-2, 0)]; {
	case list == "process_info" && len(w.gpu.processes) > 0:
		last := &w.gpu.processes[len(w.gpu.processes)-1]
		l.path = path[len(path)-1]
		*last = append(*last, l)
	case strings.Contains(l.path, "mig_device/") && len(w.gpu.instances) > 0:
		last := &w.gpu.instances[len(w.gpu.instances)-1]
		_, l.path, _ = strings.Cut(l.path, "mig_device/")
		*last = append(*last, l)
	case list == "supported_mem_clock" && len(w.gpu.supported) > 0:
		last := &w.gpu.supported[len(w.gpu.supported)-1]
		if path[len(path)-1] == "value" {
			last.memory = l
		} else {
			last.graphics = append(last.graphics, l)
		}
	case strings.HasPrefix(l.path, "accounted_processes/"):
		w.gpu.accounted = append(w.gpu.accounted, l)
	case strings.HasSuffix(l.path, "/retired_page_address"):
		w.gpu.addresses = append(w.gpu.addresses, l)
	default:
		w.gpu.add(l)
	}
	return nil
}

// top takes a value that is of no GPU.
func (r *reader) topValue(l *log, v leaf) {
	v.value, _, _ = strings.Cut(v.value, " [") // 610 adds that the name is deprecated
	switch v.path {
	case "driver_version", "kmd_version":
		l.driver = v
	case "cuda_version", "cuda_umd_version":
		l.cuda = v
	case "attached_gpus":
		l.attached = v
	case "timestamp":
	default:
		if !isAbsent(v.value) {
			r.note(v.line, "the profile has no key for %s: %s", v.path, quoted(v.value))
		}
	}
}

func (w *walk) top(v leaf) { w.topValue(w.log, v) }
