package simkubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const csrPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// identity returns the API server as the node: by the kubeconfig that there is, or by one that it has made with the bootstrap
// kubeconfig.
func (k *daemon) identity(ctx context.Context) (*api, error) {
	if a, err := k.load(ctx, k.flags["kubeconfig"]); err == nil {
		return a, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		k.logf('W', "bootstrap.go:1", "Part of the existing bootstrap client certificate is not usable: %v", err)
	}
	if err := k.bootstrap(ctx); err != nil {
		return nil, err
	}
	return k.load(ctx, k.flags["kubeconfig"])
}

// load returns the API server that a kubeconfig says, as whom it says.
func (k *daemon) load(ctx context.Context, path string) (*api, error) {
	cluster, user, err := k.kubeconfig(ctx, path)
	if err != nil {
		return nil, err
	}
	certificate, key := user.ClientCertificateData, user.ClientKeyData
	if user.ClientCertificate != "" {
		if certificate, err = k.p.Host.Files.Read(ctx, user.ClientCertificate); err != nil {
			return nil, err
		}
		if key, err = k.p.Host.Files.Read(ctx, user.ClientKey); err != nil {
			return nil, err
		}
	}
	return newAPI(k.p.Host.Network, cluster.Server, cluster.CertificateAuthorityData, user.Token, certificate, key)
}

func (k *daemon) kubeconfig(ctx context.Context, path string) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	raw, err := k.p.Host.Files.Read(ctx, path)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to load kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to load kubeconfig %s: %w", path, err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil, nil, fmt.Errorf("kubeconfig %s has no current context", path)
	}
	return config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo], nil
}

func (k *daemon) certPath(name string) string { return k.flags["cert-dir"] + `\` + name }

// bootstrap has a client certificate issued, and writes it and the kubeconfig.
func (k *daemon) bootstrap(ctx context.Context) error {
	path := k.flags["bootstrap-kubeconfig"]
	cluster, _, err := k.kubeconfig(ctx, path)
	if err != nil {
		return err
	}
	a, err := k.load(ctx, path)
	if err != nil {
		return err
	}
	defer a.Close()
	// As the real one, it keeps its key over restarts, so that it finds its request again.
	key, keyPEM, err := k.key(ctx, "kubelet-client.key.tmp")
	if err != nil {
		return err
	}
	certificate, err := k.request(ctx, a, key, "node-csr-", certificatesv1.KubeAPIServerClientKubeletSignerName,
		&x509.CertificateRequest{Subject: k.subject()}, certificatesv1.UsageClientAuth)
	if err != nil {
		return err
	}
	current := k.certPath("kubelet-client-current.pem")
	if err := k.p.Host.Files.Write(ctx, current, append(certificate, keyPEM...), host.ACLSystem); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["default-cluster"] = cluster
	config.AuthInfos["default-auth"] = &clientcmdapi.AuthInfo{ClientCertificate: current, ClientKey: current}
	config.Contexts["default-context"] = &clientcmdapi.Context{Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}
	config.CurrentContext = "default-context"
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := k.p.Host.Files.Write(ctx, k.flags["kubeconfig"], raw, host.ACLSystem); err != nil {
		return err
	}
	return k.p.Host.Files.Remove(ctx, k.certPath("kubelet-client.key.tmp"))
}

// nodeName is the name of its Node.
func (k *daemon) nodeName() string { return k.flags["hostname-override"] }

func (k *daemon) subject() pkix.Name {
	return pkix.Name{CommonName: "system:node:" + k.nodeName(), Organization: []string{"system:nodes"}}
}

// key returns the key in a file, which is made if there is none.
func (k *daemon) key(ctx context.Context, name string) (*ecdsa.PrivateKey, []byte, error) {
	raw, err := k.p.Host.Files.Read(ctx, k.certPath(name))
	if err == nil {
		parsed, err := keyutil.ParsePrivateKeyPEM(raw)
		if key, ok := parsed.(*ecdsa.PrivateKey); ok {
			return key, raw, nil
		}
		return nil, nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if raw, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	return key, raw, k.p.Host.Files.Write(ctx, k.certPath(name), raw, host.ACLSystem)
}

// request has a certificate issued.
func (k *daemon) request(ctx context.Context, a *api, key *ecdsa.PrivateKey, prefix, signer string, template *x509.CertificateRequest, usage certificatesv1.KeyUsage) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(public)
	csr := &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: prefix + hex.EncodeToString(digest[:16])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
		},
	}
	name := csr.Name
	for {
		err := a.do(ctx, http.MethodPost, csrPath, csr, &certificatesv1.CertificateSigningRequest{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			break
		}
		k.logf('E', "certificate_manager.go:1", "Failed while requesting a signed certificate from the control plane: %v", err)
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	// Some are never approved, and then a crowd of nodes should not keep asking an API server that is real.
	for interval := 500 * time.Millisecond; ; interval = min(interval*3/2, 5*time.Second) {
		answer := &certificatesv1.CertificateSigningRequest{}
		if err := a.do(ctx, http.MethodGet, csrPath+"/"+name, nil, answer); err != nil {
			k.logf('E', "certificate_manager.go:2", "Reading certificate signing request %s: %v", name, err)
		}
		for _, c := range answer.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied && c.Status == corev1.ConditionTrue {
				return nil, fmt.Errorf("certificate signing request %s is denied: %s: %s", name, c.Reason, c.Message)
			}
		}
		if len(answer.Status.Certificate) > 0 {
			return answer.Status.Certificate, nil
		}
		if err := pause(ctx, interval); err != nil {
			return nil, err
		}
	}
}

// serving has a certificate for the node's own server issued, in the background: that needs somebody who approves it.
func (k *daemon) serving(ctx context.Context, a *api) {
	current := k.certPath("kubelet-server-current.pem")
	if _, err := k.p.Host.Files.Stat(ctx, current); err == nil {
		return
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return
	}
	template := &x509.CertificateRequest{Subject: k.subject(), DNSNames: []string{k.nodeName()}}
	for _, a := range k.addresses() {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
	}
	certificate, err := k.request(ctx, a, key, "csr-", certificatesv1.KubeletServingSignerName, template, certificatesv1.UsageServerAuth)
	if err == nil {
		err = k.p.Host.Files.Write(ctx, current, append(certificate, keyPEM...), host.ACLSystem)
	}
	if err != nil && ctx.Err() == nil {
		k.logf('E', "certificate_manager.go:3", "Serving certificate: %v", err)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
