package plugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet takes registrations as the kubelet does.
type kubelet struct {
	api.UnimplementedRegistrationServer
	registered chan *api.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- r
	return &api.Empty{}, nil
}

// startKubelet starts a kubelet, which deletes the sockets of plugins as the real one does.
func startKubelet(t *testing.T, dir string) (*kubelet, func()) {
	t.Helper()
	_ = os.Remove(filepath.Join(dir, Socket("nvidia.com/gpu")))
	_ = os.Remove(filepath.Join(dir, "kubelet.sock"))
	listener, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	require.NoError(t, err)
	k, server := &kubelet{registered: make(chan *api.RegisterRequest, 8)}, grpc.NewServer()
	api.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(listener) }()
	return k, server.Stop
}

func (k *kubelet) wait(t *testing.T) *api.RegisterRequest {
	t.Helper()
	select {
	case r := <-k.registered:
		return r
	case <-time.After(time.Minute):
		t.Fatal("nobody registers")
		return nil
	}
}

func TestPlugin(t *testing.T) {
	dir, err := os.MkdirTemp("", "dp") // sockets have short paths
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var mu sync.Mutex
	devices := []Device{{"nvidia.com/gpu", "GPU-0", true, 1}, {"nvidia.com/gpu", "GPU-1", true, -1}}
	p := &Plugin{Dir: dir, Resource: "nvidia.com/gpu", Kind: "nvidia.com/gpu", Log: func(err error) { t.Log(err) }, List: func() []Device {
		mu.Lock()
		defer mu.Unlock()
		return append([]Device(nil), devices...)
	}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }() // before there is a kubelet
	k, stopKubelet := startKubelet(t, dir)
	r := k.wait(t)
	assert.Equal(t, []string{"v1beta1", Socket("nvidia.com/gpu"), "nvidia.com/gpu"}, []string{r.Version, r.Endpoint, r.ResourceName})

	connection, err := grpc.NewClient("unix://"+filepath.Join(dir, Socket("nvidia.com/gpu")), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer connection.Close()
	client := api.NewDevicePluginClient(connection)
	stream, err := client.ListAndWatch(ctx, &api.Empty{})
	require.NoError(t, err)
	next := func() map[string]string {
		t.Helper()
		list, err := stream.Recv()
		require.NoError(t, err)
		all := map[string]string{}
		for _, d := range list.Devices {
			all[d.ID] = d.Health
			if d.ID == "GPU-0" {
				assert.Equal(t, int64(1), d.Topology.Nodes[0].ID)
			} else {
				assert.Nil(t, d.Topology)
			}
		}
		return all
	}
	healthy := map[string]string{"GPU-0": "Healthy", "GPU-1": "Healthy"}
	assert.Equal(t, healthy, next())
	set := func(well bool) {
		mu.Lock()
		defer mu.Unlock()
		devices[1].Healthy = well
	}
	set(false)
	assert.Equal(t, map[string]string{"GPU-0": "Healthy", "GPU-1": "Unhealthy"}, next())
	set(true)
	assert.Equal(t, healthy, next())

	answer, err := client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"GPU-1"}}, {DevicesIds: []string{"GPU-0"}}}})
	require.NoError(t, err)
	require.Len(t, answer.ContainerResponses, 2)
	assert.Equal(t, "nvidia.com/gpu=GPU-1", answer.ContainerResponses[0].CdiDevices[0].Name)
	_, err = client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"GPU-9"}}}})
	assert.ErrorContains(t, err, "there is no device")

	stopKubelet()
	k, stopKubelet = startKubelet(t, dir) // a restart
	k.wait(t)
	assert.FileExists(t, filepath.Join(dir, Socket("nvidia.com/gpu")))
	stopKubelet()
	stop()
	require.NoError(t, <-done)
	assert.NoFileExists(t, filepath.Join(dir, Socket("nvidia.com/gpu")))
}
