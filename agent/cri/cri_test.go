package cri

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// server is a real gRPC server with what containerd would say.
type server struct {
	runtimev1.UnimplementedRuntimeServiceServer
	version *runtimev1.VersionResponse
	status  *runtimev1.StatusResponse
	err     error
}

func (s *server) Version(context.Context, *runtimev1.VersionRequest) (*runtimev1.VersionResponse, error) {
	return s.version, s.err
}

func (s *server) Status(context.Context, *runtimev1.StatusRequest) (*runtimev1.StatusResponse, error) {
	return s.status, s.err
}

func serve(t *testing.T, s *server) Dial {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	runtimev1.RegisterRuntimeServiceServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	return listener.DialContext
}

func TestVersionIsWhatARealServerAnswers(t *testing.T) {
	g := NewWithT(t)
	dial := serve(t, &server{version: &runtimev1.VersionResponse{
		Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "v2.2.0", RuntimeApiVersion: "v1",
	}})
	for range 3 {
		name, version, err := Version(t.Context(), dial)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(name).To(Equal("containerd"))
		g.Expect(version).To(Equal("v2.2.0"))
	}
}

func TestConditionsAreWhatARealServerAnswers(t *testing.T) {
	g := NewWithT(t)
	dial := serve(t, &server{status: &runtimev1.StatusResponse{
		Status: &runtimev1.RuntimeStatus{Conditions: []*runtimev1.RuntimeCondition{
			{Type: "RuntimeReady", Status: true},
			{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized: ü"},
		}},
		Info:            map[string]string{"config": "{}"},
		RuntimeHandlers: []*runtimev1.RuntimeHandler{{Name: "runhcs-wcow-process"}},
	}})
	conditions, err := Conditions(t.Context(), dial)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conditions).To(Equal([]Condition{
		{Type: "RuntimeReady", Status: true},
		{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized: ü"},
	}))
}

func TestAnErrorOfTheServerIsAStatusError(t *testing.T) {
	g := NewWithT(t)
	dial := serve(t, &server{err: grpcstatus.Error(codes.Unavailable, "server is not initialized yet: 100 % ü")})
	_, _, err := Version(t.Context(), dial)
	var answer *StatusError
	g.Expect(errors.As(err, &answer)).To(BeTrue(), "%v", err)
	g.Expect(*answer).To(Equal(StatusError{Code: 14, Message: "server is not initialized yet: 100 % ü"}))
}

func TestAServerWithoutTheCRISaysSo(t *testing.T) {
	g := NewWithT(t)
	listener := bufconn.Listen(1 << 16)
	empty := grpc.NewServer()
	go func() { _ = empty.Serve(listener) }()
	t.Cleanup(empty.Stop)
	_, _, err := Version(t.Context(), listener.DialContext)
	var answer *StatusError
	g.Expect(errors.As(err, &answer)).To(BeTrue(), "%v", err)
	g.Expect(answer.Code).To(Equal(12))
}

func TestWhatIsNoGRPCServerIsAnError(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"a status of HTTP":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"no gRPC status":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5)) },
		"half a message":    message(0, 0, 0, 0, 9, 'x'),
		"a compressed one":  message(1, 0, 0, 0, 0),
		"no message":        message(),
		"broken protobuf":   message(0, 0, 0, 0, 2, 0x12, 0x7f),
		"nothing in it":     message(0, 0, 0, 0, 0),
		"a huge length":     message(0, 0xff, 0xff, 0xff, 0xff),
		"a huge message":    message(make([]byte, maxMessage+6)...),
		"two messages":      message(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"not even a header": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			listener := bufconn.Listen(1 << 16)
			s := &http.Server{Handler: handler, Protocols: new(http.Protocols)} //nolint:gosec // of a test
			s.Protocols.SetUnencryptedHTTP2(true)
			go func() { _ = s.Serve(listener) }()
			t.Cleanup(func() { _ = s.Close() })
			if _, _, err := Version(t.Context(), listener.DialContext); err == nil {
				t.Error("no error")
			}
			// An empty status is one without conditions; what is no message is an error there, too.
			if _, err := Conditions(t.Context(), listener.DialContext); err == nil && name != "nothing in it" && name != "broken protobuf" {
				t.Error("no error")
			}
		})
	}
}

func message(body ...byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(body)
		w.Header().Set("Grpc-Status", "0")
	}
}

func TestAPipeThatDoesNotExistIsAnErrorOfItsDialer(t *testing.T) {
	g := NewWithT(t)
	missing := errors.New("no such pipe")
	_, _, err := Version(t.Context(), func(context.Context) (net.Conn, error) { return nil, missing })
	g.Expect(err).To(MatchError(missing))
}

func TestAServerThatNeverAnswersEndsWithTheContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	near, far := net.Pipe()
	go func() {
		b := make([]byte, 1<<16)
		_, _ = far.Read(b)
		cancel()
		for {
			if _, err := far.Read(b); err != nil {
				return
			}
		}
	}()
	_, _, err := Version(ctx, func(context.Context) (net.Conn, error) { return near, nil })
	g.Expect(err).To(MatchError(context.Canceled))
	_ = far.Close()
}

func FuzzFieldsNeverPanic(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 'h', 'i', 0x10, 1})
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = condition(b) })
}

func TestAPipeWithoutABufferDoesNotMakeTheTwoSidesWaitForEachOther(t *testing.T) {
	client, server := net.Pipe() // every write waits for its read
	settings := make(chan error, 1)
	go func() {
		// As gRPC's server: first its settings, then it reads.
		_, err := server.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
		settings <- err
		_ = server.Close()
	}()
	if _, _, err := Version(t.Context(), func(context.Context) (net.Conn, error) { return client, nil }); err == nil {
		t.Error("a server that goes away gave a version")
	}
	if err := <-settings; err != nil {
		t.Errorf("the server could not write: %v", err)
	}
}
