package guest

import (
	"cmp"
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
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// kubelet is the part of one that a control plane can see.
type kubelet struct {
	doc       *nodev1.NodeConfiguration
	host      host
	intervals intervals

	// What TLS bootstrap leaves on disk: CA, key and, once the certificate was issued, the node's credentials.
	ca          []byte
	key         *ecdsa.PrivateKey
	credentials *rest.Config
}

// intervals of the kubelet's heartbeats.
type intervals struct {
	lease, status time.Duration
}

// reporter is told a step, or with an error what is about to be tried again.
type reporter func(message string, err error)

// join makes the host a Node.
func (k *kubelet) join(ctx context.Context, timeout time.Duration, report reporter) error {
	if err := k.host.admit(k.doc); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := retried(ctx, report, func(ctx context.Context) (err error) {
		k.ca, err = discover(ctx, k.doc.Join)
		return err
	}); err != nil {
		return fmt.Errorf("discovering the cluster at %s: %w", k.doc.Join.APIServerEndpoint, err)
	}
	report("cluster-info is signed with the token, its CA is pinned", nil)
	if err := retried(ctx, report, k.bootstrapTLS); err != nil {
		return fmt.Errorf("getting a client certificate: %w", err)
	}
	report("client certificate was issued", nil)
	return k.register(ctx, report)
}

// retried tries do, with the kubelet's back-off, until it succeeds, fails permanently, or ctx ends.
func retried(ctx context.Context, report reporter, do func(ctx context.Context) error) error {
	var last error
	ended := forever(ctx, func(ctx context.Context) error {
		err := do(ctx)
		switch {
		case err == nil || errors.Is(err, errPermanent):
			last = err
			return nil
		case ctx.Err() == nil:
			last = err
			report("trying again", err)
		case last == nil: // else the failure before says more than this one, which was cut short
			last = err
		}
		return err
	})
	if ended != nil {
		return fmt.Errorf("giving up: %w", cmp.Or(last, ended))
	}
	return last
}

// bootstrapTLS has a client certificate for the node issued, with the token as credential.
func (k *kubelet) bootstrapTLS(ctx context.Context) error {
	if k.key == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fmt.Errorf("generating a key: %w", err)
		}
		k.key = key
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + k.doc.Node.Name, Organization: []string{"system:nodes"}},
	}, k.key)
	if err != nil {
		return fmt.Errorf("creating a certificate request: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(k.key.Public())
	if err != nil {
		return fmt.Errorf("encoding the public key: %w", err)
	}
	digest := sha256.Sum256(public)
	client, err := newClient(&rest.Config{
		Host:            "https://" + k.doc.Join.APIServerEndpoint,
		TLSClientConfig: rest.TLSClientConfig{CAData: k.ca},
		BearerToken:     k.doc.Join.Token,
	})
	if err != nil {
		return err
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		"node-csr-"+hex.EncodeToString(digest[:16]), certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, k.key)
	if err != nil {
		return err
	}
	cert, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		return fmt.Errorf("waiting for CertificateSigningRequest %s: %w", name, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(k.key)
	if err != nil {
		return fmt.Errorf("encoding the key: %w", err)
	}
	k.credentials = &rest.Config{
		Host:            "https://" + k.doc.Join.APIServerEndpoint,
		TLSClientConfig: rest.TLSClientConfig{CAData: k.ca, CertData: cert, KeyData: keyPEM},
		Timeout:         10 * time.Second,
	}
	return nil
}

// register creates the Node, or finds it as this machine left it.
func (k *kubelet) register(ctx context.Context, report reporter) error {
	client, err := newClient(rest.CopyConfig(k.credentials))
	if err != nil {
		return err
	}
	if err := retried(ctx, report, func(ctx context.Context) error {
		_, err := client.CoreV1().Nodes().Create(ctx, k.host.newNode(k.doc), metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err):
			return k.recognise(ctx, client)
		case apierrors.IsInvalid(err):
			return fmt.Errorf("%w: %w", errPermanent, err)
		}
		return err
	}); err != nil {
		return fmt.Errorf("registering Node %s: %w", k.doc.Node.Name, err)
	}
	return nil
}

// recognise tells whether the existing Node is this machine. A kubelet cannot change spec.providerID.
func (k *kubelet) recognise(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, k.doc.Node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if want := k.host.providerID(k.doc); want != "" && node.Spec.ProviderID != want {
		return fmt.Errorf("%w: the name is taken: the Node exists with provider ID %q, this machine is %q", errPermanent, node.Spec.ProviderID, want)
	}
	if node.Status.NodeInfo.SystemUUID != k.host.uuid {
		return fmt.Errorf("%w: the name is taken: the Node exists with system UUID %q, this machine is %q", errPermanent, node.Status.NodeInfo.SystemUUID, k.host.uuid)
	}
	return nil
}

// heartbeats keeps the Node Ready until ctx ends. Failures are reported, and tried again at the next interval. As a real
// kubelet, it does not register again when somebody deletes its Node: the next boot does.
func (k *kubelet) heartbeats(ctx context.Context, report reporter) {
	client, err := newClient(rest.CopyConfig(k.credentials))
	if err != nil {
		report("starting the kubelet", err)
		return
	}
	lease := time.NewTicker(k.intervals.lease)
	defer lease.Stop()
	status := time.NewTicker(k.intervals.status)
	defer status.Stop()

	leaseErr, statusErr := k.renewLease(ctx, client), k.reportStatus(ctx, client)
	for {
		if err := errors.Join(leaseErr, statusErr); err != nil {
			report("heartbeat", err)
		} else {
			report(fmt.Sprintf("Node %s is Ready", k.doc.Node.Name), nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-lease.C:
			leaseErr = k.renewLease(ctx, client)
		case <-status.C:
			statusErr = k.reportStatus(ctx, client)
		}
	}
}

func (k *kubelet) reportStatus(ctx context.Context, client kubernetes.Interface) error {
	nodes := client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, k.doc.Node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		k.host.setStatus(node, k.doc, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status", metav1.Now())
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("reporting the status of Node %s: %w", k.doc.Node.Name, err)
	}
	return nil
}

func (k *kubelet) renewLease(ctx context.Context, client kubernetes.Interface) error {
	name := k.doc.Node.Name
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		var node *corev1.Node
		if node, err = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			break
		}
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID},
			}},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity:       ptr.To(name),
				LeaseDurationSeconds: ptr.To[int32](40),
				RenewTime:            ptr.To(metav1.NowMicro()),
			},
		}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renewing Lease %s: %w", name, err)
	}
	return nil
}
