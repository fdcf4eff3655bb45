package apiclient_test

import (
	"context"
	"io/fs"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capw-dev/cluster-api-provider-windows/agent/apiclient"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/join"
	"github.com/capw-dev/cluster-api-provider-windows/agent/phases/jointest"
)

// asNode runs a test with a client that has a node's identity.
func asNode(t *testing.T, test func(ctx context.Context, g Gomega, w *jointest.World, c *apiclient.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		g := NewWithT(t)
		w := jointest.New(jointest.Options{})
		defer w.Close()
		g.Expect(w.Boot(ctx, join.Phase())).To(Succeed())
		g.Expect(w.Machine.Host().Services.Stop(ctx, layout.KubeletService)).To(Succeed()) // it would change the Node, too
		c, err := apiclient.ForNode(ctx, w.Machine.Host())
		g.Expect(err).NotTo(HaveOccurred())
		defer c.Close()
		test(ctx, g, w, c)
	})
}

func TestANodeReadsItselfAndNothingElse(t *testing.T) {
	asNode(t, func(ctx context.Context, g Gomega, _ *jointest.World, c *apiclient.Client) {
		node, err := c.Node(ctx, jointest.Name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Name).To(Equal(jointest.Name))
		_, err = c.Node(ctx, "another")
		g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		_, err = c.ConfigMap(ctx, "kube-system", "kubeadm-config")
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})
}

func TestAwaitNodeSeesAChangeAtOnce(t *testing.T) {
	asNode(t, func(ctx context.Context, g Gomega, w *jointest.World, c *apiclient.Client) {
		began := time.Now()
		time.AfterFunc(time.Minute, func() {
			node := w.API.Node(jointest.Name)
			node.Labels["x"] = "y"
			w.API.SetNode(node)
		})
		node, err := c.AwaitNode(ctx, jointest.Name, func(n *corev1.Node) bool { return n.Labels["x"] == "y" })
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Labels).To(HaveKeyWithValue("x", "y"))
		g.Expect(time.Since(began)).To(Equal(time.Minute))
	})
}

func TestAwaitNodeSurvivesDeletionAndOutage(t *testing.T) {
	asNode(t, func(ctx context.Context, g Gomega, w *jointest.World, c *apiclient.Client) {
		time.AfterFunc(10*time.Second, func() { w.API.DeleteNode(jointest.Name) })
		time.AfterFunc(20*time.Second, func() { w.API.SetDown(true) })
		time.AfterFunc(30*time.Second, func() {
			w.API.SetDown(false)
			w.API.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: jointest.Name, Labels: map[string]string{"new": ""}}})
		})
		_, err := c.AwaitNode(ctx, jointest.Name, func(n *corev1.Node) bool { _, isNew := n.Labels["new"]; return isNew })
		g.Expect(err).NotTo(HaveOccurred())
	})
}

func TestAwaitNodeSaysWhatItSawLast(t *testing.T) {
	asNode(t, func(ctx context.Context, g Gomega, w *jointest.World, c *apiclient.Client) {
		never := func(*corev1.Node) bool { return false }
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		node, err := c.AwaitNode(short, jointest.Name, never)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(node.Name).To(Equal(jointest.Name))

		w.API.DeleteNode(jointest.Name)
		short, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
		node, err = c.AwaitNode(short, jointest.Name, never)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		g.Expect(node).To(BeNil())
	})
}

func TestAMachineWithoutIdentityHasNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(sim.Options{Files: map[string]string{`C:\readme`: ""}})
		m.PowerOn(t.Context())
		defer m.PowerOff()
		_, err := apiclient.ForNode(t.Context(), m.Host())
		g.Expect(err).To(MatchError(fs.ErrNotExist))
		m.WriteFile(layout.Kubeconfig, "current-context: nothing")
		_, err = apiclient.ForNode(t.Context(), m.Host())
		g.Expect(err).To(MatchError(apiclient.ErrIdentity))
	})
}

func TestTheProxyIsTheMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(sim.Options{})
		m.PowerOn(t.Context())
		defer m.PowerOff()
		h := m.Host()
		for name, value := range map[string]string{"https_proxy": "http://proxy.example.com:3128", "NO_PROXY": "10.0.0.0/8,.internal"} {
			g.Expect(h.System.SetEnvironment(t.Context(), name, &value)).To(Succeed())
		}
		proxy, err := apiclient.Proxy(t.Context(), h.System)
		g.Expect(err).NotTo(HaveOccurred())
		for target, want := range map[string]bool{"https://api.example.com:6443": true, "https://10.0.0.1:6443": false, "https://api.internal": false} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
			g.Expect(err).NotTo(HaveOccurred())
			through, err := proxy(request)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(through != nil).To(Equal(want), target)
		}
	})
}
