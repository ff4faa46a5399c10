package agent

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/intstr"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// lister is a kubelet that gives GPUs to pods.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	uuid string
}

func (l *lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Name: "train-0", Namespace: "team", Containers: []*podresources.ContainerResources{
		{Name: "side"}, {Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: []string{l.uuid}}}}}}}}, nil
}

// TestMetricsNamePods: the metrics of a GPU name the container that has it, and none if the kubelet does not answer.
func TestMetricsNamePods(t *testing.T) {
	c := newCluster(t, "default: {profile: h100, count: 2}\n")
	dir, err := os.MkdirTemp("", "pr") // sockets have short paths
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c.o.PodResources = dir + "/kubelet.sock"
	c.start()
	c.until("True Staged")
	of := func(gpu string) string {
		match := regexp.MustCompile(`(?m)^DCGM_FI_DEV_GPU_TEMP\{gpu="` + gpu + `",.*?hostname="n1",(.*)DCGM_FI_DRIVER_VERSION.*$`).FindStringSubmatch(c.agent.Metrics(t.Context()))
		require.NotNil(t, match)
		return match[1]
	}
	assert.Empty(t, of("1"))
	listener, err := net.Listen("unix", c.o.PodResources)
	require.NoError(t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, &lister{uuid: string(c.device(1).UUID)})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	assert.Equal(t, `container="main",namespace="team",pod="train-0",`, of("1"))
	assert.Empty(t, of("0"))
}

// TestMetrics: the metrics follow the faults, and each line is one of dcgm-exporter's form.
func TestMetrics(t *testing.T) {
	c := newCluster(t, "default: {profile: h100, count: 2}\n")
	c.start()
	c.until("True Staged")
	get := func() string {
		w := httptest.NewRecorder()
		c.agent.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		assert.Equal(t, 200, w.Code)
		return w.Body.String()
	}
	of := func(name, gpu string) string {
		match := regexp.MustCompile(`(?m)^` + name + `\{gpu="` + gpu + `",.*\} (.*)$`).FindStringSubmatch(get())
		if match == nil {
			return "none"
		}
		return match[1]
	}
	form := regexp.MustCompile(`^DCGM_FI_DEV_[A-Z_]+\{gpu="[01]",UUID="GPU-[0-9a-f-]{36}",pci_bus_id="[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0",device="nvidia[01]",` +
		`modelName="NVIDIA H100 80GB HBM3",Hostname="n1",hostname="n1",DCGM_FI_DRIVER_VERSION="580\.105\.08"\} [0-9.e+]+$`)
	for line := range strings.Lines(get()) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "# ") {
			assert.Regexp(t, form, line)
		}
	}
	assert.Equal(t, 1, strings.Count(get(), "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"))
	assert.Equal(t, "0", of("DCGM_FI_DEV_XID_ERRORS", "1"))
	assert.NotEqual(t, "none", of("DCGM_FI_DEV_POWER_USAGE", "1"))

	c.fail("hot", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "thermal", Temperature: 97})
	c.fail("gone", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(1), Kind: "lost"})
	c.becomes("hot", "True")
	c.becomes("gone", "True")
	assert.Equal(t, "97", of("DCGM_FI_DEV_GPU_TEMP", "0"))
	assert.Equal(t, "79", of("DCGM_FI_DEV_XID_ERRORS", "1"))
	assert.Equal(t, "none", of("DCGM_FI_DEV_GPU_TEMP", "1"))
	c.heal("gone")
	c.settle(func() bool { return of("DCGM_FI_DEV_GPU_TEMP", "1") != "none" }, "it answers again")
	assert.Equal(t, "79", of("DCGM_FI_DEV_XID_ERRORS", "1"))
}
