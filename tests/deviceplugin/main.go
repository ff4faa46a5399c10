// Command deviceplugin plays the kubelet for NVIDIA's device plugin: it prints a line of JSON for each list of GPUs that the
// plugin sends, with the health of each, until the plugin ends.
//
// It is a module of its own, since the plugin brings modules that nothing else here is built with.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func main() {
	socket := flag.String("socket", kubelet.DevicePluginPath+"nvidia-gpu.sock", "where the plugin serves")
	flag.Parse()
	if err := watch(*socket); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func watch(socket string) error {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Since(begin) > 5*time.Minute {
			return fmt.Errorf("%s does not come", socket)
		}
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	lists, err := kubelet.NewDevicePluginClient(conn).ListAndWatch(context.Background(), &kubelet.Empty{})
	if err != nil {
		return err
	}
	for {
		list, err := lists.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		health := map[string]string{}
		for _, d := range list.Devices {
			health[d.ID] = d.Health
		}
		if err := json.NewEncoder(os.Stdout).Encode(health); err != nil {
			return err
		}
	}
}
