// A device plugin whose devices do not exist: `device-plugin FOLDER RESOURCE=COUNT…` advertises COUNT devices of every RESOURCE.
//
// The kubelet counts and assigns them as it does with the vendors' plugins, so pods are scheduled as on machines that have the
// devices; a container gets nothing but a variable with the names of its own, e.g. RTP_FAKE_NVIDIA_COM_GPU. FOLDER is the
// kubelet's `plugins_registry`, where the kubelet finds the sockets again after it restarts.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	devices "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

var identifier = strings.NewReplacer("/", "_", ".", "_", "-", "_")

type plugin struct {
	devices.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	resource string
	socket   string
	offered  []*devices.Device
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.DevicePlugin,
		Name:              p.resource,
		Endpoint:          p.socket,
		SupportedVersions: []string{devices.Version},
	}, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Printf("%s: the kubelet refused the plugin: %s", p.resource, status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *devices.Empty) (*devices.DevicePluginOptions, error) {
	return &devices.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *devices.Empty, stream devices.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&devices.ListAndWatchResponse{Devices: p.offered}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *devices.AllocateRequest) (*devices.AllocateResponse, error) {
	answer := &devices.AllocateResponse{}
	variable := "RTP_FAKE_" + strings.ToUpper(identifier.Replace(p.resource))
	for _, container := range request.ContainerRequests {
		names := map[string]string{variable: strings.Join(container.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &devices.ContainerAllocateResponse{Envs: names})
	}
	return answer, nil
}

func (p *plugin) serve() error {
	if err := os.RemoveAll(p.socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, p)
	devices.RegisterDevicePluginServer(server, p)
	return server.Serve(listener)
}

func newPlugin(folder string, wanted string) (*plugin, error) {
	resource, number, _ := strings.Cut(wanted, "=")
	count, err := strconv.Atoi(number)
	if err != nil {
		return nil, fmt.Errorf("%s: not RESOURCE=COUNT", wanted)
	}
	made := &plugin{resource: resource, socket: filepath.Join(folder, identifier.Replace(resource)+".sock")}
	for index := range count {
		made.offered = append(made.offered, &devices.Device{ID: fmt.Sprintf("fake-%d", index), Health: devices.Healthy})
	}
	return made, nil
}

func main() {
	if err := os.MkdirAll(os.Args[1], 0o750); err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	for _, wanted := range os.Args[2:] {
		made, err := newPlugin(os.Args[1], wanted)
		if err != nil {
			log.Fatal(err)
		}
		go func() { ended <- made.serve() }()
	}
	log.Fatal(<-ended)
}
