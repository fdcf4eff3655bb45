package apitest

import (
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// Request is a request that was made.
type Request struct {
	// User and its groups; system:anonymous without credentials.
	User   string
	Groups []string
	// Method, Path and Query of it.
	Method, Path, Query string
}

// Answer is an answer in place of the server's own.
type Answer struct {
	// Code is the HTTP status; 0: the connection breaks.
	Code int
	// Message of the Status object.
	Message string
}

// Decision is about a certificate signing request.
type Decision string

// Decisions.
const (
	Approve Decision = "Approve"
	Deny    Decision = "Deny"
	// Hold leaves it pending.
	Hold Decision = "Hold"
)

// Intercept lets a test answer requests: nil from it is the server's own answer. It is called without locks.
func (s *Server) Intercept(answer func(Request) *Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = answer
}

// SetDown refuses new connections and breaks requests, or no longer does so. Watches go on.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
}

// Decide says what is done about certificate signing requests, those that are pending and later ones.
func (s *Server) Decide(decide func(*certificatesv1.CertificateSigningRequest) Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = decide
	for _, name := range slices.Sorted(maps.Keys(s.requests)) {
		s.settle(s.requests[name])
	}
}

// SetTokens replaces the tokens that may join. With signed, cluster-info has their signatures; else it has none yet.
func (s *Server) SetTokens(signed bool, tokens ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed, s.tokens = signed, map[string]bool{}
	for _, t := range tokens {
		s.tokens[t] = true
	}
}

// SetCA gives the cluster another CA, as if the endpoint led to another cluster.
func (s *Server) SetCA(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authority = newAuthority(name)
}

// Requests returns those that were made.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// CSRs returns the certificate signing requests, by name.
func (s *Server) CSRs() []certificatesv1.CertificateSigningRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []certificatesv1.CertificateSigningRequest
	for _, name := range slices.Sorted(maps.Keys(s.requests)) {
		out = append(out, *s.requests[name].DeepCopy())
	}
	return out
}

// Node returns a Node; nil if there is none.
func (s *Server) Node(name string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name].DeepCopy()
}

// Nodes returns the names of all Nodes.
func (s *Server) Nodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.nodes))
}

// SetNode creates or replaces a Node, as somebody with all rights may.
func (s *Server) SetNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(node.DeepCopy())
}

// DeleteNode removes a Node.
func (s *Server) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
	s.touch()
}

// HasLease says whether a node has renewed its Lease.
func (s *Server) HasLease(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[node] != nil
}

// user says who made a request.
func (s *Server) user(bearer string, certificate *identity) (identity, bool) {
	switch {
	case certificate != nil:
		return *certificate, true
	case bearer == "":
		return identity{name: "system:anonymous", groups: []string{"system:unauthenticated"}}, true
	case s.tokens[bearer]:
		id, _, _ := strings.Cut(bearer, ".")
		return identity{name: "system:bootstrap:" + id, groups: []string{bootstrappers, "system:bootstrappers:kubeadm:default-node-token"}}, true
	default:
		return identity{}, false
	}
}

const (
	bootstrappers = "system:bootstrappers"
	nodesGroup    = "system:nodes"
	nodePrefix    = "system:node:"
)

type identity struct {
	name   string
	groups []string
}

func (i identity) in(group string) bool { return slices.Contains(i.groups, group) }

// node returns the name of the Node that it is; empty for others.
func (i identity) node() string {
	name, ok := strings.CutPrefix(i.name, nodePrefix)
	if !ok || !i.in(nodesGroup) {
		return ""
	}
	return name
}
