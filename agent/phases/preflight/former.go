package preflight

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// ipamDir is where host-local keeps which pod addresses are taken; it does not notice that the pods are gone.
const ipamDir = `C:\var\lib\cni`

// checkFormerNode refuses a machine that is a node of another cluster, or another node of this one: the kubelet would come up
// with that identity. Services of the image are no sign of it; they are taken over. Of a machine that is no node, what pods of
// a former one have left is removed.
//
// That the machine is this very node is fine: the agent may have lost its journal.
func checkFormerNode(ctx context.Context, r *engine.Run) error {
	raw, err := r.Host.Files.Read(ctx, layout.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		if err := r.Host.Files.Remove(ctx, ipamDir); err != nil {
			return codes.New(codes.LeftoversNotRemoved, "removing %s: %w", ipamDir, err)
		}
		return nil
	}
	if err != nil {
		return codes.New(codes.HostUnreadable, "reading %s: %w", layout.Kubeconfig, err)
	}
	member, err := readMember(ctx, r, raw)
	if err != nil {
		return err
	}
	node := "system:node:" + r.Doc.Node.Name
	switch {
	case !slices.ContainsFunc(member.caHashes, func(hash string) bool { return slices.Contains(r.Doc.Join.CACertHashes, hash) }):
		return codes.New(codes.MemberAlready, "%s is for the API server %s, whose CA is not the one of cluster %s", layout.Kubeconfig, member.server, r.Doc.Cluster.Name)
	case member.user != node:
		return codes.New(codes.MemberAlready, "the identity in %s is %q, not %q", layout.Kubeconfig, member.user, node)
	}
	logr.FromContextOrDiscard(ctx).Info("The machine is this node already", "kubeconfig", layout.Kubeconfig)
	return nil
}

// member is whose node a machine is.
type member struct {
	server   string
	caHashes []string
	user     string
}

// readMember reads a kubelet's kubeconfig. What is missing in it, or cannot be understood, is empty.
func readMember(ctx context.Context, r *engine.Run, raw []byte) (member, error) {
	config, err := clientcmd.Load(raw)
	if err != nil {
		return member{server: "unknown"}, nil //nolint:nilerr // a damaged one is nobody's
	}
	cluster, user := &clientcmdapi.Cluster{}, &clientcmdapi.AuthInfo{}
	if current := config.Contexts[config.CurrentContext]; current != nil {
		if c := config.Clusters[current.Cluster]; c != nil {
			cluster = c
		}
		if u := config.AuthInfos[current.AuthInfo]; u != nil {
			user = u
		}
	}
	ca, err := dataOrFile(ctx, r, cluster.CertificateAuthorityData, cluster.CertificateAuthority)
	if err != nil {
		return member{}, err
	}
	cert, err := dataOrFile(ctx, r, user.ClientCertificateData, user.ClientCertificate)
	if err != nil {
		return member{}, err
	}
	m := member{server: cluster.Server}
	for _, c := range certificates(ca) {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		m.caHashes = append(m.caHashes, "sha256:"+hex.EncodeToString(sum[:]))
	}
	if chain := certificates(cert); len(chain) > 0 {
		m.user = chain[0].Subject.CommonName
	}
	return m, nil
}

// dataOrFile returns data, or the content of the file that stands for it; nil if there is neither. kubeadm leaves the drive
// out of paths.
func dataOrFile(ctx context.Context, r *engine.Run, data []byte, path string) ([]byte, error) {
	if len(data) > 0 || path == "" {
		return data, nil
	}
	path = strings.ReplaceAll(path, "/", `\`)
	if strings.HasPrefix(path, `\`) {
		path = `C:` + path
	}
	raw, err := r.Host.Files.Read(ctx, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, codes.New(codes.HostUnreadable, "reading %s: %w", path, err)
	}
	return raw, nil
}

// certificates returns those in PEM data, which may hold keys beside them.
func certificates(data []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for data = bytes.TrimSpace(data); len(data) > 0; {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			out = append(out, c)
		}
	}
	return out
}
