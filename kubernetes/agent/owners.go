package agent

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// owner is the container that has a device.
type owner struct{ pod, namespace, container string }

// owners are the containers that have the devices of the node, by the devices' UUIDs, as the kubelet knows them.
func (a *Agent) owners(ctx context.Context) (map[string]owner, error) {
	if a.o.PodResources == "" {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	connection, err := grpc.NewClient("unix://"+a.o.PodResources, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	response, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{}, grpc.MaxCallRecvMsgSize(16<<20))
	if err != nil {
		return nil, err
	}
	all := map[string]owner{}
	for _, pod := range response.PodResources {
		for _, container := range pod.Containers {
			for _, d := range container.Devices {
				for _, id := range d.DeviceIds {
					all[id] = owner{pod.Name, pod.Namespace, container.Name}
				}
			}
		}
	}
	return all, nil
}
