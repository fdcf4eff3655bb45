package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// maxSkew is how far the clocks may be apart: kube-controller-manager dates certificates back by so much.
const maxSkew = 5 * time.Minute

// apiServer returns host and port of the API server.
func apiServer(r *engine.Run) (name, port string, err error) {
	name, port, err = net.SplitHostPort(r.Doc.Join.APIServerEndpoint)
	if err != nil {
		return "", "", codes.New(codes.NetworkConfigRejected, "join.apiServerEndpoint: %w", err)
	}
	return name, port, nil
}

func resolveAPIServer(ctx context.Context, r *engine.Run) error {
	name, _, err := apiServer(r)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	addresses, err := r.Host.Network.Resolve(ctx, name)
	if err == nil && len(addresses) > 0 {
		logr.FromContextOrDiscard(ctx).Info("The API server's name is resolved", "name", name, "addresses", addresses)
		return nil
	}
	if err == nil {
		return codes.New(codes.NameNotResolved, "%s has no address; asked were %s", name, dnsServers(ctx, r))
	}
	return codes.New(codes.NameNotResolved, "resolving %s; asked were %s: %w", name, dnsServers(ctx, r), err)
}

// dnsServers lists the DNS servers, for a message.
func dnsServers(ctx context.Context, r *engine.Run) string {
	adapters, err := r.Host.Network.Adapters(ctx)
	if err != nil {
		return "unknown servers"
	}
	var servers []netip.Addr
	for _, a := range devices(adapters) {
		servers = append(servers, a.DNSServers...)
	}
	if len(servers) == 0 {
		return "no servers, as no adapter has any"
	}
	return fmt.Sprint(servers)
}

// reachAPIServer speaks TLS with the API server. It believes nothing that is said: the join verifies.
func reachAPIServer(ctx context.Context, r *engine.Run) error {
	conn, err := connect(ctx, r)
	if err != nil {
		return err
	}
	_ = conn.NetConn().Close() // nobody waits for a farewell
	return nil
}

func connect(ctx context.Context, r *engine.Run) (*tls.Conn, error) {
	name, port, err := apiServer(r)
	if err != nil {
		return nil, err
	}
	endpoint := net.JoinHostPort(name, port)
	raw, err := r.Host.Network.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return nil, codes.New(codes.APIServerUnreachable, "connecting to %s: %w", endpoint, err)
	}
	conn := tls.Client(raw, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}) //nolint:gosec // nothing is believed or told here
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // it has failed already
		return nil, codes.New(codes.APIServerNotTLS, "speaking TLS with %s: %w", endpoint, err)
	}
	return conn, nil
}

// compareClocks compares the machine's clock with the API server's. When it is wrong, it has the Windows time service set it,
// and the next attempt looks again.
func compareClocks(ctx context.Context, r *engine.Run) error {
	conn, err := connect(ctx, r)
	if err != nil {
		return err
	}
	defer conn.NetConn().Close() //nolint:errcheck // all is read, and nobody waits for a farewell
	date := serverDate(ctx, conn)
	if err := skew(time.Now(), date, conn.ConnectionState().PeerCertificates); err != nil {
		synchronize(ctx, r)
		return codes.New(codes.ClockDiffers, "%w", err)
	}
	return nil
}

// serverDate returns the time in the answer to a request, whatever the answer; zero if there is none.
func serverDate(ctx context.Context, conn *tls.Conn) time.Time {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+conn.RemoteAddr().String()+"/livez", http.NoBody)
	if err != nil {
		return time.Time{}
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return time.Time{}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return time.Time{}
	}
	defer resp.Body.Close() //nolint:errcheck // not read
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}

// skew is an error if the clock differs too much from the server's date, or, if that is zero, is before the server's
// certificate was made.
func skew(now, date time.Time, chain []*x509.Certificate) error {
	if !date.IsZero() {
		switch behind := date.Sub(now); {
		case behind > maxSkew:
			return fmt.Errorf("this machine's clock, %s, is %s behind the API server's", now.UTC().Format(time.RFC3339), behind.Round(time.Second))
		case behind < -maxSkew:
			return fmt.Errorf("this machine's clock, %s, is %s ahead of the API server's", now.UTC().Format(time.RFC3339), -behind.Round(time.Second))
		}
		return nil
	}
	if len(chain) > 0 && now.Add(maxSkew).Before(chain[0].NotBefore) {
		return fmt.Errorf("this machine's clock, %s, is at least %s behind the API server's, whose certificate is of %s",
			now.UTC().Format(time.RFC3339), chain[0].NotBefore.Sub(now).Round(time.Second), chain[0].NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// synchronize has the Windows time service set the clock now. Where it cannot, the wait goes on: the hypervisor may set it.
func synchronize(ctx context.Context, r *engine.Run) {
	log := logr.FromContextOrDiscard(ctx)
	info, err := r.Host.System.Info(ctx)
	if err != nil {
		log.Info("The clock cannot be set", "error", err.Error())
		return
	}
	if err := r.Host.Services.Start(ctx, "W32Time"); err != nil {
		log.Info("The time service does not start", "error", err.Error())
		return
	}
	result, err := r.Host.Processes.Run(ctx, host.Command{Argv: []string{layout.Join(info.SystemRoot, "System32", "w32tm.exe"), "/resync"}})
	if err != nil {
		log.Info("The clock cannot be set", "error", err.Error())
		return
	}
	log.Info("The time service was told to set the clock", "exitCode", result.ExitCode)
}
