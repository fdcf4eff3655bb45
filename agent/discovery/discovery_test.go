package discovery_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient"
	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient/apitest"
	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/discovery"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

func TestDiscovery(t *testing.T) {
	for name, c := range map[string]struct {
		options apitest.Options
		// change makes something wrong; dial replaces the server's.
		change func(s *apitest.Server, join *nodev1.JoinInfo)
		dial   func(s *apitest.Server) func(ctx context.Context, network, address string) (net.Conn, error)
		after  time.Duration
		want   codes.Code
		part   string
	}{
		"the CA is found": {},
		"by name":         {options: apitest.Options{Endpoint: "api.example.com:443"}},
		"one of several pins fits": {change: func(_ *apitest.Server, j *nodev1.JoinInfo) {
			j.CACertHashes = append([]string{"sha256:00"}, j.CACertHashes...)
		}},
		"nobody answers":            {change: func(s *apitest.Server, _ *nodev1.JoinInfo) { s.SetDown(true) }, want: codes.EndpointUnreachable, part: "refused"},
		"the server fails":          {change: answer(http.StatusInternalServerError), want: codes.EndpointUnreachable, part: "as told"},
		"the connection breaks":     {change: answer(0), want: codes.EndpointUnreachable, part: "EOF"},
		"no anonymous requests":     {change: answer(http.StatusUnauthorized), want: codes.ClusterInfoMissing, part: "credentials"},
		"no cluster-info":           {change: answer(http.StatusNotFound), want: codes.ClusterInfoMissing, part: "cluster-info"},
		"not signed yet":            {change: func(s *apitest.Server, j *nodev1.JoinInfo) { s.SetTokens(false, j.Token) }, want: codes.TokenUnknown, part: "token ID abcdef"},
		"the token is unknown":      {change: func(s *apitest.Server, _ *nodev1.JoinInfo) { s.SetTokens(true, "zzzzzz.0123456789abcdef") }, want: codes.TokenUnknown, part: "token ID abcdef"},
		"another secret":            {change: func(s *apitest.Server, _ *nodev1.JoinInfo) { s.SetTokens(true, "abcdef.xxxxxxxxxxxxxxxx") }, want: codes.SignatureInvalid, part: "token ID abcdef"},
		"another CA":                {change: func(s *apitest.Server, _ *nodev1.JoinInfo) { s.SetCA("other") }, want: codes.CAHashMismatch, part: "pinned is sha256:"},
		"a certificate for another": {options: apitest.Options{Endpoint: "10.0.0.1:6443"}, change: elsewhere, dial: anywhere, want: codes.ServingCertificate, part: "10.0.0.2"},
		"the clock is ahead":        {after: 3 * 365 * 24 * time.Hour, want: codes.ServingCertificateTime, part: "expired or is not yet valid"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				s := apitest.New(c.options)
				defer s.Close()
				join := s.Join()
				if c.change != nil {
					c.change(s, &join)
				}
				dial := s.DialContext
				if c.dial != nil {
					dial = c.dial(s)
				}
				time.Sleep(c.after)
				ca, err := discovery.Discover(t.Context(), apiclient.Config{Dial: dial}, join)
				if c.want == "" {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(ca).To(Equal(s.CA()))
					return
				}
				info, message := codes.Of(err)
				g.Expect(info.Code).To(Equal(c.want), message)
				g.Expect(message).To(ContainSubstring(c.part))
				g.Expect(message).NotTo(ContainSubstring(strings.SplitN(join.Token, ".", 2)[1]), "the secret")
				g.Expect(ca).To(BeNil())
			})
		})
	}
}

func answer(code int) func(*apitest.Server, *nodev1.JoinInfo) {
	return func(s *apitest.Server, _ *nodev1.JoinInfo) {
		s.Intercept(func(apitest.Request) *apitest.Answer { return &apitest.Answer{Code: code, Message: "as told"} })
	}
}

func elsewhere(_ *apitest.Server, join *nodev1.JoinInfo) { join.APIServerEndpoint = "10.0.0.2:6443" }

func anywhere(s *apitest.Server) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return s.DialContext(ctx, network, s.Endpoint())
	}
}

func TestTheTokenIsNeverSentBeforeTheServerIsTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := apitest.New(apitest.Options{})
		defer s.Close()
		_, err := discovery.Discover(t.Context(), apiclient.Config{Dial: s.DialContext, Token: "must-not-be-used"}, s.Join())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s.Requests()).To(HaveLen(2))
		for _, r := range s.Requests() {
			g.Expect(r.User).To(Equal("system:anonymous"))
		}
	})
}

func TestAClusterInfoThatChangesBetweenBothReadsIsNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := apitest.New(apitest.Options{})
		defer s.Close()
		var reads atomic.Int32
		s.Intercept(func(apitest.Request) *apitest.Answer {
			if reads.Add(1) == 2 {
				s.SetCA("other") // the connection is still that of the first one
			}
			return nil
		})
		_, err := discovery.Discover(t.Context(), apiclient.Config{Dial: s.DialContext}, s.Join())
		info, message := codes.Of(err)
		g.Expect(info.Code).To(Equal(codes.ClusterInfoInvalid), message)
	})
}
