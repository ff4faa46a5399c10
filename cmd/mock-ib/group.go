package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/machine/fabric/peers"
	"github.com/nvmlfab/nvmlfab/machine/fabric/umad"
)

// together is this daemon as one of several that have one fabric.
type together struct {
	local *umad.Local
	group *peers.Group
	// changed is called after another host has changed the fabric.
	changed func()

	mu     sync.Mutex
	there  []string // hosts that have a daemon
	faults map[string][]fabric.Fault
	loads  map[uint64]fabric.Traffic // of other hosts' ports, by their GUIDs

	listens bool              // the other daemons connect to this one
	altered bool              // datagrams have changed the fabric, here or before this daemon came
	parts   map[string][]byte // of settings that are arriving, by host
	recent  []peers.Message   // what was changed here since this host joined
	number  uint64            // of the last of all changes here
	seen    map[string]uint64 // numbers of the last changes of other hosts
}

// token reads the secret of a file that nobody else may read.
func token(file string) ([]byte, error) {
	if file == "" {
		return nil, errors.New("--listen and --join need --token-file: a file with a secret that all hosts have")
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others may read it; chmod 600 %s", file, file)
	}
	text, err := os.ReadFile(file)
	text = bytes.TrimSpace(text)
	if err == nil && len(text) < 16 {
		err = fmt.Errorf("%s: a token has 16 bytes at least", file)
	}
	return text, err
}

// fingerprint tells fabrics apart: by the GUID, LID and cable of each port.
func fingerprint(f *fabric.Fabric) string {
	h := sha256.New()
	for _, n := range f.Nodes {
		fmt.Fprintf(h, "%q %x %q\n", n.Description, n.GUID, n.Host)
		for _, p := range n.Ports {
			if p != nil && p.Remote != nil {
				fmt.Fprintf(h, "%d %x %d %x %d\n", p.Number, p.GUID, p.LID, p.Remote.Node.GUID, p.Remote.Number)
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// newTogether sets a daemon up to be one of several. simulated are hosts that are there without a daemon.
func newTogether(local *umad.Local, f *fabric.Fabric, simulated []string, secret []byte, log func(string, ...any)) *together {
	t := &together{local: local, changed: func() {}, faults: map[string][]fabric.Fault{}, loads: map[uint64]fabric.Traffic{}, seen: map[string]uint64{},
		number: uint64(time.Now().UnixNano())} // higher than before this daemon was started again
	t.group = &peers.Group{Self: local.Host, Fabric: fingerprint(f), Token: secret, Log: log}
	t.group.Receive = func(m peers.Message) { t.receive(m, simulated) }
	t.group.Welcome, t.group.Joined = t.settings, t.joined
	local.SetAway(t)
	t.present([]string{local.Host}, simulated)
	// Hosts that are still to come have not lost a link.
	local.Do(func(f *fabric.Fabric) {
		for _, n := range f.Nodes {
			for _, p := range n.Ports {
				if p != nil {
					p.Restore(fabric.Counters{})
				}
			}
		}
	})
	return t
}

// present says which hosts have a daemon. The others look switched off.
func (t *together) present(hosts, simulated []string) {
	t.mu.Lock()
	t.there = slices.Clone(hosts)
	maps.DeleteFunc(t.parts, func(host string, _ []byte) bool { return !slices.Contains(hosts, host) })
	t.mu.Unlock()
	t.local.Do(func(f *fabric.Fabric) {
		f.SetPresent(func(host string) bool {
			return host == t.local.Host || slices.Contains(hosts, host) || slices.Contains(simulated, host)
		})
	})
	t.changed()
}

func (t *together) receive(m peers.Message, simulated []string) {
	switch m.Kind {
	case peers.Present:
		t.present(m.Hosts, simulated)
	case peers.MAD:
		t.local.Arrive(m.Source, m.LID, m.MAD, func(reply []byte) {
			t.group.Send(peers.Message{Kind: peers.MAD, To: m.From, Source: m.LID, LID: m.Source, MAD: reply})
		})
	case peers.Set:
		t.local.Apply(m.Port, m.LID, m.MAD)
		t.mu.Lock()
		t.altered = true
		t.seen[m.From] = m.Number
		t.mu.Unlock()
		t.changed()
	case peers.Settings:
		if err := t.takeSettings(m); err != nil {
			t.group.Log("settings of host %s: %v", m.From, err)
		}
	case peers.Faults:
		for i := range m.Faults {
			m.Faults[i].Host = m.From
		}
		if err := t.setFaults(m.From, m.Faults); err != nil {
			t.group.Log("faults of host %s: %v", m.From, err)
		}
		t.changed()
	case peers.Loads:
		t.local.Do(func(f *fabric.Fabric) {
			for guid := range m.Traffic {
				if p := f.ByGUID(guid); p == nil || p.Node.Host != m.From { // nobody speaks for another
					delete(m.Traffic, guid)
				}
			}
		})
		t.raise(m.Traffic)
	}
}

// raise takes over what ports of other hosts have sent and received. Nothing falls.
func (t *together) raise(loads map[uint64]fabric.Traffic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for guid, now := range loads {
		was := t.loads[guid]
		t.loads[guid] = fabric.Traffic{Sent: max(was.Sent, now.Sent), Received: max(was.Received, now.Received)}
	}
}

// traffic is what a port of another host has sent and received, as that host has said last.
func (t *together) traffic(p *fabric.Port) fabric.Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loads[p.GUID]
}

// Relay implements umad.Away.
func (t *together) Relay(host string, source, lid uint16, mad []byte) bool {
	t.mu.Lock()
	there := slices.Contains(t.there, host)
	t.mu.Unlock()
	if there {
		t.group.Send(peers.Message{Kind: peers.MAD, To: host, Source: source, LID: lid, MAD: mad})
	}
	return there
}

// Changed implements umad.Away.
func (t *together) Changed(from *fabric.Port, lid uint16, mad []byte) {
	m := peers.Message{Kind: peers.Set, Port: from.GUID, LID: lid, MAD: mad}
	t.mu.Lock()
	t.altered = true
	t.number++
	m.Number = t.number
	if t.recent = append(t.recent, m); len(t.recent) > mostRecent {
		t.recent = slices.Delete(t.recent, 0, mostRecent/2)
	}
	t.mu.Unlock()
	t.group.Send(m)
}

const (
	mostRecent   = 4096
	partSize     = 512 << 10 // bytes of settings in one message
	mostSettings = 64 << 20  // bytes
)

// settings is what datagrams have changed, for another daemon.
func (t *together) settings() []peers.Message {
	t.mu.Lock()
	altered, seen := t.altered, maps.Clone(t.seen) // before the settings, which have at least these changes
	t.mu.Unlock()
	var s fabric.Settings
	t.local.Do(func(f *fabric.Fabric) { s = f.Settings(time.Now()) })
	text, err := json.Marshal(s)
	if err != nil {
		t.group.Log("the settings cannot be sent: %v", err)
		return nil
	}
	var list []peers.Message
	for part := range slices.Chunk(text, partSize) {
		list = append(list, peers.Message{Kind: peers.Settings, Changed: altered, Part: part, More: true})
	}
	list[len(list)-1].More, list[len(list)-1].Seen = false, seen
	return list
}

// joined is called when this host has joined others.
func (t *together) joined() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts, t.recent = nil, nil
}

// takeSettings takes over what datagrams have changed before this daemon came, which it learns from the one that listens. That
// learns it from the others if it was started again itself.
func (t *together) takeSettings(m peers.Message) error {
	t.mu.Lock()
	if len(t.parts[m.From])+len(m.Part) > mostSettings {
		delete(t.parts, m.From)
		t.mu.Unlock()
		return errors.New("they are too long")
	}
	if t.parts == nil {
		t.parts = map[string][]byte{}
	}
	t.parts[m.From] = append(t.parts[m.From], m.Part...)
	if m.More {
		t.mu.Unlock()
		return nil
	}
	text := t.parts[m.From]
	delete(t.parts, m.From)
	known := t.altered && (t.listens || !m.Changed)
	t.altered = t.altered || m.Changed
	t.mu.Unlock()
	switch {
	case known && t.listens: // two have told what they know; all have the first by now
		return nil
	case known:
		list := t.settings()
		for i := range list {
			list[i].To = m.From
		}
		t.group.Send(list...)
		return nil
	}
	var s fabric.Settings
	err := json.Unmarshal(text, &s)
	if err == nil {
		t.raise(s.Traffic) // before what was cleared of it
		t.local.Do(func(f *fabric.Fabric) { err = f.SetSettings(s, time.Now()) })
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	recent := slices.Clone(t.recent)
	t.mu.Unlock()
	for _, x := range recent { // what the other had not heard of yet
		if x.Number > m.Seen[t.local.Host] {
			t.local.Apply(x.Port, x.LID, x.MAD)
		}
	}
	if t.listens {
		t.group.Send(t.settings()...)
	}
	t.changed()
	return nil
}

// setFaults puts the faults that a host has made in the place of its last ones.
func (t *together) setFaults(host string, faults []fabric.Fault) error {
	t.mu.Lock()
	before := t.faults[host]
	t.faults[host] = faults
	var all []fabric.Fault
	for _, x := range t.faults {
		all = append(all, x...)
	}
	t.mu.Unlock()
	var err error
	t.local.Do(func(f *fabric.Fabric) { err = f.SetFaults(t.local.Host, all, time.Now()) })
	if err != nil {
		t.mu.Lock()
		t.faults[host] = before
		t.mu.Unlock()
	}
	return err
}

// tell gives this host's faults to all hosts.
func (t *together) tell(faults []fabric.Fault) error {
	if err := t.setFaults(t.local.Host, faults); err != nil {
		return err
	}
	t.group.Send(peers.Message{Kind: peers.Faults, Faults: faults})
	return nil
}

// address is what --listen names; without a host it is the loopback address.
func address(text string) string {
	if host, port, err := net.SplitHostPort(text); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return text
}
