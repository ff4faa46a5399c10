// Package plugin is a device plugin: it tells the kubelet which GPUs a node has and which of them are well, and gives them to
// containers by their CDI names. Unlike NVIDIA's, it says so when a GPU heals.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Device is a GPU or a MIG device that containers can have.
type Device struct {
	// Resource is what containers ask for, such as nvidia.com/gpu.
	Resource string
	// ID is its UUID, which is also its CDI name.
	ID      string
	Healthy bool
	// NUMA is the NUMA node that it is at; negative for none.
	NUMA int64
}

// Plugin serves the devices of one resource.
type Plugin struct {
	// Dir is the kubelet's folder for sockets of plugins.
	Dir string
	// Resource is what containers ask for, such as nvidia.com/gpu, and Kind the vendor and class of the CDI names.
	Resource, Kind string
	// List are the devices as they are now.
	List func() []Device
	// Log is told what goes wrong.
	Log func(error)

	api.UnimplementedDevicePluginServer
	mu      sync.Mutex
	devices []Device
	changed chan struct{} // closed when devices have changed
}

// period is how often a plugin looks at the devices and at the kubelet.
const period = 250 * time.Millisecond

// Socket is the name of the socket of a resource's plugin.
func Socket(resource string) string {
	return "nvmlfab-" + resource[strings.LastIndex(resource, "/")+1:] + ".sock"
}

// Serve serves all devices of a list until the context ends, by a plugin for each resource that there has been. A resource without
// devices stays known to the kubelet, with none.
func Serve(ctx context.Context, dir, kind string, list func() []Device, log func(error)) {
	var all sync.WaitGroup
	defer all.Wait()
	known := map[string]bool{}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		for _, d := range list() {
			if known[d.Resource] {
				continue
			}
			known[d.Resource] = true
			p := &Plugin{Dir: dir, Resource: d.Resource, Kind: kind, Log: log, List: func() []Device {
				return slices.DeleteFunc(list(), func(other Device) bool { return other.Resource != d.Resource })
			}}
			all.Go(func() {
				if err := p.Run(ctx); err != nil {
					log(err)
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Run serves the devices until the context ends. It registers with the kubelet, and again whenever the kubelet starts anew.
func (p *Plugin) Run(ctx context.Context) error {
	p.changed = make(chan struct{})
	p.look()
	var server *grpc.Server
	stop := func() {
		if server != nil {
			server.Stop()
			server = nil
		}
	}
	defer func() {
		stop()
		if err := os.Remove(p.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.Log(err)
		}
	}()
	var kubelet, registered string
	said := ""
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		p.look()
		kubelet = identity(filepath.Join(p.Dir, "kubelet.sock"))
		if server == nil || identity(p.socket()) == "" || kubelet != registered {
			stop()
			registered = ""
			if kubelet != "" {
				var err error
				if server, err = p.serve(); err == nil {
					err = p.register(ctx)
				}
				if err == nil {
					registered, said = kubelet, ""
				} else {
					stop()
					if ctx.Err() == nil && err.Error() != said { // once, and not each time that it is tried
						said = err.Error()
						p.Log(fmt.Errorf("the kubelet does not take the device plugin yet: %w", err))
					}
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *Plugin) socket() string { return filepath.Join(p.Dir, Socket(p.Resource)) }

// identity tells a socket from one that took its place; empty if there is none.
func identity(path string) string {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return ""
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(s.Dev, s.Ino, s.Ctim.Nano())
}

// look takes the devices as they are now, and wakes those who wait for a change.
func (p *Plugin) look() {
	now := p.List()
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(now, p.devices) {
		return
	}
	p.devices = now
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Plugin) serve() (*grpc.Server, error) {
	if err := os.Remove(p.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", p.socket())
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			p.Log(err)
		}
	}()
	return server, nil
}

func (p *Plugin) register(ctx context.Context) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(p.Dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: Socket(p.Resource), ResourceName: p.Resource, Options: &api.DevicePluginOptions{},
	})
	return err
}

// GetDevicePluginOptions says that the kubelet need not ask which devices go well together, nor announce containers.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends all devices, and all of them again after each change.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		var response api.ListAndWatchResponse
		for _, d := range devices {
			one := &api.Device{ID: d.ID, Health: api.Unhealthy}
			if d.Healthy {
				one.Health = api.Healthy
			}
			if d.NUMA >= 0 {
				one.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: d.NUMA}}}
			}
			response.Devices = append(response.Devices, one)
		}
		if err := stream.Send(&response); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate names the devices that a container gets.
func (p *Plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	p.mu.Lock()
	devices := p.devices
	p.mu.Unlock()
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		one := &api.ContainerAllocateResponse{}
		for _, id := range container.DevicesIds {
			if !slices.ContainsFunc(devices, func(d Device) bool { return d.ID == id }) {
				return nil, status.Errorf(codes.InvalidArgument, "there is no device %.80q", id)
			}
			one.CdiDevices = append(one.CdiDevices, &api.CDIDevice{Name: p.Kind + "=" + id})
		}
		response.ContainerResponses = append(response.ContainerResponses, one)
	}
	return response, nil
}
