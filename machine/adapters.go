package machine

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// adapter is an InfiniBand adapter of the machine: what the profile says of it, and its place in the fabric.
type adapter struct {
	profiles.Adapter
	node   *fabric.Node
	number int // among the adapters
	first  int // number of its first port among the ports of all adapters
}

// adaptersOf are the machine's adapters, if they are to be shown.
func adaptersOf(board *profiles.Board, options Options) (list []*adapter) {
	if options.Fabric == nil {
		return nil
	}
	nodes := options.Fabric.Host(options.Host)
	ports := 0
	for i, a := range board.Adapters(options.Host) {
		if i == len(nodes) {
			break
		}
		list = append(list, &adapter{a, nodes[i], i, ports})
		ports += len(nodes[i].Ports) - 1
	}
	return list
}

// Numbers of the device nodes, as the kernel gives them out: 64 for umad, issm and verbs each from fixed minors on, and others
// from a major number that is free.
const (
	majorRDMA     = 231
	majorMoreUMAD = 510
	majorMoreVerb = 511
	majorMisc     = 10
	minorISSM     = 64
	minorVerbs    = 192
	minorRDMACM   = 122
	fixedUMAD     = 64
	fixedVerbs    = 32
)

// Numbers of the devices of a port and of an adapter.
func umadNumber(n int) (major, minor int) {
	if n < fixedUMAD {
		return majorRDMA, n
	}
	return majorMoreUMAD, n - fixedUMAD
}

func issmNumber(n int) (major, minor int) {
	if n < fixedUMAD {
		return majorRDMA, minorISSM + n
	}
	return majorMoreUMAD, fixedUMAD*16 + n - fixedUMAD
}

func verbsNumber(n int) (major, minor int) {
	if n < fixedVerbs {
		return majorRDMA, minorVerbs + n
	}
	return majorMoreVerb, n - fixedVerbs
}

const (
	classIB    = "sys/class/infiniband"
	classMAD   = "sys/class/infiniband_mad"
	classVerbs = "sys/class/infiniband_verbs"
	classNet   = "sys/class/net"
	classMisc  = "sys/class/misc"
)

// infiniband writes what the kernel's InfiniBand core and mlx5's drivers show of the adapters: classes, devices, network
// interfaces and modules.
func (b *builder) infiniband() {
	if b.options.Fabric == nil {
		return
	}
	for _, r := range b.roots {
		r.each(func(f *function) {
			if f.hca != nil {
				b.adapter(f)
				b.netDevice(f)
			}
		})
	}
	b.tree.dir(classIB)
	b.tree.file(classMAD+"/abi_version", "5\n")
	b.tree.file(classVerbs+"/abi_version", "6\n")
	b.misc("rdma_cm", "4", minorRDMACM)
	b.infinibandModules()
}

// device writes the files that every device of a class has.
func (b *builder) device(dir, class, above string, major, minor int, node string) *Node {
	at := b.tree.dir(dir)
	name := path.Base(dir)
	event := ""
	if node != "" {
		at.file("dev", fmt.Sprintf("%d:%d\n", major, minor))
		event = fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s\n", major, minor, node)
		if class != classMAD {
			event += "DEVMODE=0666\n"
		}
		mode := fs.FileMode(0o666)
		if class == classMAD {
			mode = 0o600
		}
		// A socket, which open refuses by ENXIO as it does a device without a driver, whoever opens it. It needs no rights to make.
		b.tree.put("dev/"+node, &Node{Mode: fs.ModeSocket | mode})
	}
	at.knob("uevent", event)
	at.file("power/runtime_status", "unsupported\n")
	at.knob("power/control", "auto\n")
	if above != "" {
		b.tree.between(dir+"/device", above)
	}
	b.tree.between(dir+"/subsystem", class)
	b.tree.between(class+"/"+name, dir)
	return at
}

func (b *builder) misc(name, abi string, minor int) {
	at := b.device("sys/devices/virtual/misc/"+name, classMisc, "", majorMisc, minor, "infiniband/"+name)
	at.file("abi_version", abi+"\n")
}

// adapter writes an adapter's devices: the InfiniBand device itself, and those for management datagrams and verbs.
func (b *builder) adapter(f *function) {
	a, n, above := f.hca, f.hca.node, f.path()
	at := b.device(above+"/infiniband/"+a.Name, classIB, above, 0, 0, "")
	at.knob("uevent", "NAME="+a.Name+"\n")
	at.file("node_type", "1: CA\n")
	at.file("node_guid", guid(n.GUID)+"\n")
	at.file("sys_image_guid", guid(n.System)+"\n")
	at.put("node_desc", &Node{Mode: changeable, Data: n.Description + "\n", Live: true})
	at.file("fw_ver", firmware(a.Firmware)+"\n")
	at.file("hca_type", n.HCA.Type()+"\n")
	at.file("hw_rev", fmt.Sprintf("%x\n", n.HCA.HWRev))
	at.file("board_id", n.HCA.BoardID+"\n")
	for i, p := range n.Ports[1:] {
		b.port(at.dir(fmt.Sprintf("ports/%d", p.Number)), a, p)
		for _, device := range []struct {
			name   string
			number func(int) (int, int)
		}{{"umad", umadNumber}, {"issm", issmNumber}} {
			name := fmt.Sprintf("%s%d", device.name, a.first+i)
			major, minor := device.number(a.first + i)
			d := b.device(above+"/infiniband_mad/"+name, classMAD, above, major, minor, "infiniband/"+name)
			d.file("ibdev", a.Name+"\n")
			d.file("port", fmt.Sprintf("%d\n", p.Number))
		}
	}
	name := fmt.Sprintf("uverbs%d", a.number)
	major, minor := verbsNumber(a.number)
	d := b.device(above+"/infiniband_verbs/"+name, classVerbs, above, major, minor, "infiniband/"+name)
	d.file("ibdev", a.Name+"\n")
	d.file("abi_version", "1\n")
}

// guid writes a GUID as sysfs does.
func guid(g uint64) string { return profiles.GUID(g).String() }

// gid writes a GID as sysfs does.
func gid(prefix, id uint64) string { return guid(prefix) + ":" + guid(id) }

// firmware writes a version as the mlx5 driver does, with four digits at the end.
func firmware(version string) string {
	var v [3]int
	fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	return fmt.Sprintf("%d.%d.%04d", v[0], v[1], v[2])
}

// Sizes of the tables of a port.
const (
	gids     = 8
	gidsRoCE = 256
	pkeys    = 128
)

// port writes the files of a port.
func (b *builder) port(at *Node, a *adapter, p *fabric.Port) {
	for name, text := range liveFiles(a, p) {
		at.live(name, text)
	}
	at.file("lid_mask_count", fmt.Sprintf("%d\n", p.LMC))
	at.file("sm_sl", "0\n")
	at.file("link_layer", p.LinkLayer.String()+"\n")
	zero := gid(0, 0) + "\n"
	if p.LinkLayer == fabric.Ethernet {
		at.file("pkeys/0", "0xffff\n")
		for i := range gidsRoCE {
			at.file(fmt.Sprintf("gids/%d", i), zero)
		}
		types := []string{"IB/RoCE v1", "RoCE v2"}
		ids := []string{gid(fabric.Prefix, p.GUID), gid(fabric.Prefix, p.GUID), mapped(p), mapped(p)}
		for i, id := range ids {
			at.file(fmt.Sprintf("gids/%d", i), id+"\n")
			at.file(fmt.Sprintf("gid_attrs/types/%d", i), types[i%2]+"\n")
			at.file(fmt.Sprintf("gid_attrs/ndevs/%d", i), cmp.Or(p.NetDev, a.NetDevice)+"\n")
		}
	} else {
		for i := range pkeys {
			at.file(fmt.Sprintf("pkeys/%d", i), "0x0000\n")
		}
		at.file("pkeys/0", "0xffff\n")
		for i := range gids {
			at.file(fmt.Sprintf("gids/%d", i), zero)
		}
		prefix, id := p.GID()
		at.file("gids/0", gid(prefix, id)+"\n")
		at.file("gid_attrs/types/0", "IB/RoCE v1\n")
		at.dir("gid_attrs/ndevs")
	}
	for _, name := range portCounters {
		at.live("counters/"+name, "0\n")
	}
	names := hwCounters
	if p.LinkLayer == fabric.Ethernet {
		names += " np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled rp_cnp_ignored"
	}
	for _, name := range strings.Fields(names) {
		at.live("hw_counters/"+name, "0\n")
	}
	at.knob("hw_counters/lifespan", "12\n")
}

// mapped is the GID of a RoCE port's IPv4 address, which is made up: 192.168 and the end of its GUID.
func mapped(p *fabric.Port) string { return gid(0, 0xffff<<32|0xc0a8<<16|p.GUID&0xffff) }

// liveFiles are the files of a port that follow its state, by name below its folder in sysfs.
func liveFiles(a *adapter, p *fabric.Port) map[string]string {
	return map[string]string{
		portFile:     portText(a, p),
		"state":      fmt.Sprintf("%d: %s\n", p.State, p.State),
		"phys_state": fmt.Sprintf("%d: %s\n", p.Phys, p.Phys),
		"rate":       p.Rate() + "\n",
		"lid":        fmt.Sprintf("0x%x\n", p.ShownLID()),
		"sm_lid":     fmt.Sprintf("0x%x\n", p.ShownSMLID()),
		"cap_mask":   fmt.Sprintf("0x%08x\n", p.CapMask),
	}
}

// portFile is a hidden file of a port's folder. libibmockverbs.so reads from it, in one piece, what it says of the port.
const portFile = ".port"

func portText(a *adapter, p *fabric.Port) string {
	table, keys := gids, pkeys
	net := ""
	if p.LinkLayer == fabric.Ethernet {
		table, keys = gidsRoCE, 1
		net = fmt.Sprintf(" net=%s net_index=%d", cmp.Or(p.NetDev, a.NetDevice), a.netIndex())
	}
	return fmt.Sprintf("state=%d phys_state=%d width=%d speed=%d lid=%d sm_lid=%d lmc=%d sm_sl=0 cap_mask=%#x cap_mask2=%#x max_mtu=%d mtu=%d "+
		"gids=%d pkeys=%d link_layer=%s prefix=%#x%s\n", p.State, p.Phys, p.Width.Bit(), p.Speed.ActiveSpeed(), p.ShownLID(), p.ShownSMLID(),
		p.LMC, p.CapMask, p.CapMask2, p.MaxMTU, p.MTU, table, keys, p.LinkLayer, uint64(fabric.Prefix), net)
}

var portCounters = strings.Fields(`VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery
	local_link_integrity_errors multicast_rcv_packets multicast_xmit_packets port_rcv_constraint_errors port_rcv_data port_rcv_errors
	port_rcv_packets port_rcv_remote_physical_errors port_rcv_switch_relay_errors port_xmit_constraint_errors port_xmit_data
	port_xmit_discards port_xmit_packets port_xmit_wait symbol_error unicast_rcv_packets unicast_xmit_packets`)

const hwCounters = `duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer out_of_sequence packet_seq_err
	req_cqe_error req_cqe_flush_error req_remote_access_errors req_remote_invalid_request resp_cqe_error resp_cqe_flush_error
	resp_local_length_error resp_remote_access_errors rnr_nak_retry_err roce_adp_retrans roce_adp_retrans_to roce_slow_restart
	roce_slow_restart_cnps roce_slow_restart_trans rx_atomic_requests rx_dct_connect rx_icrc_encapsulated rx_read_requests
	rx_write_requests`

// netStatistics are the counters of a network interface. RDMA goes past it, so they stand still.
const netStatistics = `collisions multicast rx_bytes rx_compressed rx_crc_errors rx_dropped rx_errors rx_fifo_errors rx_frame_errors
	rx_length_errors rx_missed_errors rx_nohandler rx_over_errors rx_packets tx_aborted_errors tx_bytes tx_carrier_errors tx_compressed
	tx_dropped tx_errors tx_fifo_errors tx_heartbeat_errors tx_packets tx_window_errors`

// netDevice writes an adapter's network interface.
func (b *builder) netDevice(f *function) {
	a, above := f.hca, f.path()
	p := a.node.Ports[1]
	dir := above + "/net/" + a.NetDevice
	index := a.netIndex()
	at := b.tree.dir(dir)
	put := func(name, format string, args ...any) { at.file(name, fmt.Sprintf(format+"\n", args...)) }
	at.knob("uevent", fmt.Sprintf("INTERFACE=%s\nIFINDEX=%d\n", a.NetDevice, index))
	mac := fabric.MAC(a.node.GUID)
	address, broadcast := colons(mac[:]), "ff:ff:ff:ff:ff:ff"
	kind, mtu, queue := 1, 1500, 1000
	if p.LinkLayer == fabric.InfiniBand {
		prefix, id := p.GID()
		address = "00:00:10:48:" + colons(big(prefix)) + ":" + colons(big(id))
		broadcast = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
		kind, mtu, queue = 32, 4092, 256
	}
	put("address", "%s", address)
	put("broadcast", "%s", broadcast)
	put("addr_len", "%d", (len(address)+1)/3)
	put("addr_assign_type", "0")
	put("type", "%d", kind)
	at.knob("mtu", fmt.Sprintf("%d\n", mtu))
	at.knob("tx_queue_len", fmt.Sprintf("%d\n", queue))
	at.knob("flags", "0x1003\n")
	put("ifindex", "%d", index)
	put("iflink", "%d", index)
	put("dev_id", "0x0")
	put("dev_port", "0")
	put("duplex", "full")
	put("link_mode", "0")
	put("dormant", "0")
	for name, text := range liveNet(p) {
		at.live(name, text)
	}
	for _, name := range strings.Fields(netStatistics) {
		at.live("statistics/"+name, "0\n")
	}
	b.tree.between(dir+"/device", above)
	b.tree.between(dir+"/subsystem", classNet)
	b.tree.between(classNet+"/"+a.NetDevice, dir)
}

// netIndex is the number of the adapter's network interface, far from those of the host, which count from 1.
func (a *adapter) netIndex() int { return 1000 + a.number }

// liveNet are the files of an interface that follow the state of its port.
func liveNet(p *fabric.Port) map[string]string {
	if p.Up() {
		return map[string]string{"operstate": "up\n", "carrier": "1\n", "speed": fmt.Sprintf("%d\n", p.Tenths()*100)}
	}
	return map[string]string{"operstate": "down\n", "carrier": "0\n", "speed": "-1\n"}
}

func colons(bytes []byte) string { return strings.ReplaceAll(fmt.Sprintf("% x", bytes), " ", ":") }

func big(n uint64) []byte {
	return []byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// infinibandModules writes the modules of the InfiniBand core and of mlx5.
func (b *builder) infinibandModules() {
	for _, m := range []struct {
		name  string
		size  int
		users []string
	}{
		{"nvidia_peermem", 16384, nil},
		{"rdma_cm", 143360, nil},
		{"ib_ipoib", 139264, nil},
		{"ib_umad", 40960, nil},
		{"mlx5_ib", 471040, nil},
		{"ib_uverbs", 200704, []string{"rdma_cm", "mlx5_ib"}},
		{"ib_core", 524288, []string{"rdma_cm", "ib_ipoib", "ib_umad", "nvidia_peermem", "ib_uverbs", "mlx5_ib"}},
		{"mlx5_core", 2146304, []string{"mlx5_ib"}},
	} {
		b.module(m.name, m.size, m.users, map[bool]string{true: "OE", false: ""}[m.name == "nvidia_peermem"])
	}
	b.tree.file("sys/module/nvidia_peermem/version", b.driver+"\n")
	b.added[devicesFile] = strings.Replace(b.added[devicesFile], fmt.Sprintf("%3d ", majorUVM),
		fmt.Sprintf("%3d infiniband_mad\n%3d infiniband_verbs\n%3d ", majorRDMA, majorRDMA, majorUVM), 1)
}
