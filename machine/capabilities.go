package machine

import (
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// CapabilityFormat is the name of a capability's device node in /dev, with its minor number.
const CapabilityFormat = "nvidia-caps/nvidia-cap%d"

// CapabilityNode is the device node of a capability, in /dev.
func CapabilityNode(minor uint32) string { return fmt.Sprintf(CapabilityFormat, minor) }

// capabilities writes what the driver's folder of that name holds, and the lists of all capabilities' numbers. The files of
// MIG instances come and go, and so they are in the state directory, to which a link leads.
func (b *builder) capabilities(dir string) {
	b.tree.file(dir+"/mig/config", caps.Text(caps.Config, 0o400))
	b.tree.file(dir+"/mig/monitor", caps.Text(caps.Monitor, caps.ModeOfInstances))
	const lists = "proc/driver/nvidia-caps"
	b.tree.file(lists+"/mig-minors", migMinors())
	b.tree.file(lists+"/nvlink-minors", fmt.Sprintf("fabric-mgmt %d\n", caps.FabricManager))
	if branch(b.driver) >= 550 { // the first with channels of the IMEX service
		b.tree.file(dir+"/fabric-imex-mgmt", caps.Text(caps.FabricIMEX, 0o400))
		b.tree.file(lists+"/sys-minors", fmt.Sprintf("fabric-imex-mgmt %d\n", caps.FabricIMEX))
	}
	for i := range b.board.Devices {
		d := &b.board.Devices[i]
		gpu := caps.GPUFolder(Minor(d))
		mig := path.Join(dir, gpu, "mig")
		switch {
		case b.options.State == "" || Minor(d) >= caps.GPUs:
			b.tree.dir(mig)
		case d.MIG.Visible == nil:
			b.tree.link(mig, b.instances(mig, gpu))
		default:
			b.tree.dir(mig)
			for _, file := range visible(d) {
				b.tree.link(path.Join(mig, file), b.instances(path.Join(mig, file), path.Join(gpu, file)))
			}
		}
	}
}

// visible are the files of the MIG devices that programs see.
func visible(d *profiles.Device) (files []string) {
	for _, name := range d.MIG.Visible {
		files = append(files, path.Join(path.Dir(name), "access"), path.Join(name, "access"))
	}
	return files
}

// instances is where a link of the tree leads to in the state directory's folder of capabilities.
func (b *builder) instances(link, name string) string {
	target := path.Join(b.options.State, caps.Folder, name)
	if path.IsAbs(target) {
		return target
	}
	return strings.Repeat("../", strings.Count(link, "/")) + target
}

// migMinors lists the numbers of all capabilities of MIG, whatever GPUs there are.
var migMinors = sync.OnceValue(func() string {
	var text strings.Builder
	fmt.Fprintf(&text, "config %d\nmonitor %d\n", caps.Config, caps.Monitor)
	for gpu := range uint32(caps.GPUs) {
		for instance := range uint32(caps.Instances) {
			file, minor := caps.Instance(gpu, instance)
			fmt.Fprintf(&text, "%s %d\n", file, minor)
			for part := range uint32(caps.Parts) {
				file, minor := caps.Part(gpu, instance, part)
				fmt.Fprintf(&text, "%s %d\n", file, minor)
			}
		}
	}
	return text.String()
})

// Minors are the minor numbers of a board's GPUs.
func Minors(board *profiles.Board) (list []uint32) {
	for i := range board.Devices {
		list = append(list, Minor(&board.Devices[i]))
	}
	return list
}

// minors are the minor numbers of the tree's GPUs.
func (t *Tree) minors() (list []uint32) {
	for _, gpu := range t.GPUs {
		list = append(list, gpu.Minor)
	}
	return list
}
