package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

// bootstrapCertificate gets the kubelet's client certificate with the bootstrap token, unless it has one.
func bootstrapCertificate(ctx context.Context, f *flags, node string) error {
	if usable(f.kubeconfig) {
		return nil
	}
	if f.bootstrapKubeconfig == "" {
		return fmt.Errorf("%s cannot be used, and there is no --bootstrap-kubeconfig", f.kubeconfig)
	}
	bootstrap, err := clientcmd.LoadFromFile(f.bootstrapKubeconfig)
	if err != nil {
		return err
	}
	config, err := clientcmd.NewDefaultClientConfig(*bootstrap, nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.certDir, 0o700); err != nil {
		return err
	}
	// The key is kept until there is a certificate: a kubelet that starts again finds its own request.
	key, keyPEM, err := keptKey(filepath.Join(f.certDir, "kubelet-client.key.tmp"))
	if err != nil {
		return err
	}
	certificate, err := request(ctx, client, key, node)
	if err != nil {
		return err
	}
	// The real one writes kubelet-client-<time>.pem and a link of this name.
	current := filepath.Join(f.certDir, "kubelet-client-current.pem")
	if err := os.WriteFile(current, append(certificate, keyPEM...), 0o600); err != nil {
		return err
	}
	if err := writeKubeconfig(f.kubeconfig, config, current); err != nil {
		return err
	}
	logf("Certificate issued, wrote %s", f.kubeconfig)
	return os.Remove(filepath.Join(f.certDir, "kubelet-client.key.tmp"))
}

// usable says whether a kubeconfig has a client certificate that is valid now.
func usable(kubeconfig string) bool {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil || config.CertFile == "" {
		return false
	}
	certs, err := cert.CertsFromFile(config.CertFile)
	return err == nil && time.Now().Before(certs[0].NotAfter)
}

func keptKey(path string) (*ecdsa.PrivateKey, []byte, error) {
	keyPEM, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
			return nil, nil, err
		}
		return key, keyPEM, os.WriteFile(path, keyPEM, 0o600)
	}
	if err != nil {
		return nil, nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("%s is no ECDSA key", path)
	}
	return key, keyPEM, nil
}

func request(ctx context.Context, client kubernetes.Interface, key *ecdsa.PrivateKey, node string) ([]byte, error) {
	csrPEM, err := cert.MakeCSR(key, &pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(public)
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, csrPEM,
		"node-csr-"+base64.RawURLEncoding.EncodeToString(digest[:]), certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	return csr.WaitForCertificate(ctx, client, name, uid)
}

func writeKubeconfig(path string, bootstrap *rest.Config, certificate string) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"default-cluster": {
			Server:                   bootstrap.Host,
			CertificateAuthority:     bootstrap.CAFile,
			CertificateAuthorityData: bootstrap.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: certificate, ClientKey: certificate}},
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth"}},
		CurrentContext: "default-context",
	}, path)
}
