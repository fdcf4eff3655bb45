// Command vcsim serves a simulated vCenter as a process of its own. When it is ready it prints one line of JSON on standard
// output; it ends when standard input is closed, so that it cannot outlive the process that started it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

// ready is what is printed when the vCenter can be used.
type ready struct {
	URL        string `json:"url"`
	Host       string `json:"host"`
	Thumbprint string `json:"thumbprint"`
	Username   string `json:"username"`
	Password   string `json:"password"`
	Control    string `json:"control"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vcsim:", err)
		os.Exit(1)
	}
}

func run() error {
	var o vcsim.Options
	flag.StringVar(&o.Listen, "listen", "127.0.0.1:0", "host:port of the vCenter")
	control := flag.String("control", "127.0.0.1:0", "host:port of the control endpoint")
	flag.StringVar(&o.Username, "username", "", "user name that a login needs (default administrator@vsphere.local)")
	flag.StringVar(&o.Password, "password", "", "password that a login needs, with -username")
	flag.DurationVar(&o.Delays.Clone, "clone-delay", 0, "duration of a clone task before its VM exists")
	flag.DurationVar(&o.Delays.PowerOn, "power-on-delay", 0, "duration of the power-on inside a clone task")
	flag.DurationVar(&o.Delays.RoundTrip, "round-trip", 0, "delay of every request")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := vcsim.Start(o)
	if err != nil {
		return err
	}
	defer server.Close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *control)
	if err != nil {
		return fmt.Errorf("listening for control: %w", err)
	}
	controlServer := &http.Server{Handler: server.Control(), ReadHeaderTimeout: 10 * time.Second}
	defer func() { _ = controlServer.Close() }()
	failed := make(chan error, 1)
	go func() { failed <- controlServer.Serve(listener) }()

	if err := json.NewEncoder(os.Stdout).Encode(ready{
		URL: server.URL(), Host: server.Host(), Thumbprint: server.Thumbprint(),
		Username: server.Username, Password: server.Password,
		Control: "http://" + listener.Addr().String(),
	}); err != nil {
		return err
	}

	orphaned := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(orphaned)
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-orphaned:
		return nil
	case err := <-failed:
		return fmt.Errorf("serving control: %w", err)
	}
}
