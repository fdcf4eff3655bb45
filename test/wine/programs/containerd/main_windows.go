// Command containerd stands in for containerd.exe: it reads its configuration, answers the parts of CRI that kubeadm and the
// kubelet ask for before there are pods, and runs on the console or as a Windows service.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/Microsoft/go-winio"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capw-dev/cluster-api-provider-windows/test/wine/programs/internal/program"
)

const (
	version     = "v2.2.0"
	defaultPipe = `\\.\pipe\containerd-containerd`
)

type options struct {
	config, address, serviceName string
	runService                   bool
}

func main() {
	// containerd's flags; an unknown one ends it.
	flags := pflag.NewFlagSet("containerd", pflag.ContinueOnError)
	o := &options{}
	printVersion := flags.BoolP("version", "v", false, "")
	flags.StringVarP(&o.config, "config", "c", `C:\Program Files\containerd\config.toml`, "")
	flags.StringVarP(&o.address, "address", "a", "", "")
	flags.BoolVar(&o.runService, "run-service", false, "")
	flags.StringVar(&o.serviceName, "service-name", "containerd", "")
	flags.StringP("log-level", "l", "", "")
	for _, ignored := range []string{"log-file", "root", "state"} {
		flags.String(ignored, "", "")
	}
	if err := flags.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
	if *printVersion {
		fmt.Println("containerd github.com/containerd/containerd/v2", version, "1c4457e00facac03ce1d75f7b6777a7a851e5c41")
		return
	}
	program.Run(o.runService, o.serviceName, o.run)
}

func (o *options) run(ctx context.Context) error {
	if err := program.Record(); err != nil {
		return err
	}
	pipe, err := o.pipe()
	if err != nil {
		return fmt.Errorf("failed to load TOML from %s: %w", o.config, err)
	}
	listener, err := winio.ListenPipe(pipe, nil)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", pipe, err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, runtimeService{})
	runtimeapi.RegisterImageServiceServer(server, imageService{})
	context.AfterFunc(ctx, server.Stop)
	go occupy(ctx, pipe)
	fmt.Fprintf(os.Stderr, "time=%q level=info msg=\"containerd successfully booted\" address=%q\n", time.Now().Format(time.RFC3339Nano), pipe)
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// occupy keeps clients from an instance of the pipe that winio holds and never accepts from. On Windows nobody can connect to
// it; Wine connects the first client to it, and after that client's end the next one, which then waits in vain. A client
// that came before this is such a one, and tries again when its time is over.
func occupy(ctx context.Context, pipe string) {
	for ctx.Err() == nil {
		conn, err := winio.DialPipeContext(ctx, pipe)
		if err != nil {
			continue
		}
		// The server speaks first.
		err = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if errors.Is(err, winio.ErrTimeout) {
			<-ctx.Done()
		}
		_ = conn.Close()
		time.Sleep(20 * time.Millisecond)
	}
}

// pipe reads the configuration, which must be there, and of a version that containerd 2 knows.
func (o *options) pipe() (string, error) {
	var config struct {
		Version int
		GRPC    struct{ Address string }
		Imports []string
	}
	if _, err := toml.DecodeFile(o.config, &config); err != nil {
		return "", err
	}
	if config.Version < 1 || config.Version > 3 {
		return "", fmt.Errorf("version %d is none of 1, 2, 3", config.Version)
	}
	for _, address := range []string{o.address, config.GRPC.Address} {
		if address != "" {
			return address, nil
		}
	}
	return defaultPipe, nil
}

type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: version, RuntimeApiVersion: "v1"}, nil
}

func (runtimeService) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

func (runtimeService) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{}, nil
}

func (runtimeService) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (runtimeService) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
}

func (imageService) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{}, nil
}

func (imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(),
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: `C:\`},
		UsedBytes: &runtimeapi.UInt64Value{Value: 1},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
