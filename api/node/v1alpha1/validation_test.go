package v1alpha1

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func valid() *NodeConfiguration {
	return &NodeConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: NodeConfigurationKind},
		Cluster:  ClusterInfo{Namespace: "default", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node: NodeInfo{
			Name:       "prod-ki54itvck1",
			Labels:     map[string]string{"example.com/pool": "win"},
			Taints:     []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}},
			ProviderID: "Auto",
		},
		Join: JoinInfo{
			APIServerEndpoint: "prod.example.com:6443",
			CACertHashes:      []string{"sha256:" + strings.Repeat("0123456789abcdef", 4)},
			Token:             "abcdef.0123456789abcdef",
		},
	}
}

func TestValidateAcceptsWhatCanBecomeANode(t *testing.T) {
	for name, change := range map[string]func(*NodeConfiguration){
		"a plain worker":             func(*NodeConfiguration) {},
		"no labels":                  func(c *NodeConfiguration) { c.Node.Labels = nil },
		"no taints":                  func(c *NodeConfiguration) { c.Node.Taints = nil },
		"an external cloud provider": func(c *NodeConfiguration) { c.Node.ProviderID = "None" },
		"a pre-release":              func(c *NodeConfiguration) { c.Cluster.KubernetesVersion = "v1.37.0-beta.1+build.5" },
		"an IPv4 endpoint":           func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "192.0.2.1:6443" },
		"an IPv6 endpoint":           func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "[2001:db8::1]:443" },
		"two CAs":                    func(c *NodeConfiguration) { c.Join.CACertHashes = append(c.Join.CACertHashes, c.Join.CACertHashes...) },
		"two effects of one taint key": func(c *NodeConfiguration) {
			c.Node.Taints = append(c.Node.Taints, corev1.Taint{Key: "os", Effect: corev1.TaintEffectNoExecute})
		},
		"the shortest name": func(c *NodeConfiguration) { c.Node.Name = "a" },
	} {
		c := valid()
		change(c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateNamesTheFieldThatIsWrong(t *testing.T) {
	now := metav1.NewTime(time.Unix(0, 0))
	for name, tc := range map[string]struct {
		change func(*NodeConfiguration)
		field  string
	}{
		"another API version":          {func(c *NodeConfiguration) { c.APIVersion = "node.windows.cluster.x-k8s.io/v1" }, "apiVersion"},
		"another kind":                 {func(c *NodeConfiguration) { c.Kind = "JoinConfiguration" }, "kind"},
		"no namespace":                 {func(c *NodeConfiguration) { c.Cluster.Namespace = "" }, "cluster.namespace"},
		"a bad cluster name":           {func(c *NodeConfiguration) { c.Cluster.Name = "Prod" }, "cluster.name"},
		"a version without v":          {func(c *NodeConfiguration) { c.Cluster.KubernetesVersion = "1.36.3" }, "cluster.kubernetesVersion"},
		"half a version":               {func(c *NodeConfiguration) { c.Cluster.KubernetesVersion = "v1.36" }, "cluster.kubernetesVersion"},
		"no name":                      {func(c *NodeConfiguration) { c.Node.Name = "" }, "node.name"},
		"a name of 16 characters":      {func(c *NodeConfiguration) { c.Node.Name = "prod-ki54itvck1x" }, "node.name"},
		"a name in capitals":           {func(c *NodeConfiguration) { c.Node.Name = "WIN-1" }, "node.name"},
		"a name with a dot":            {func(c *NodeConfiguration) { c.Node.Name = "win.1" }, "node.name"},
		"a name that ends with a dash": {func(c *NodeConfiguration) { c.Node.Name = "win-" }, "node.name"},
		"a name of digits":             {func(c *NodeConfiguration) { c.Node.Name = "2022" }, "node.name"},
		"a bad label key":              {func(c *NodeConfiguration) { c.Node.Labels = map[string]string{"a b": ""} }, "node.labels[a b]"},
		"a bad label value":            {func(c *NodeConfiguration) { c.Node.Labels = map[string]string{"a": "ü"} }, "node.labels[a]"},
		"a bad taint key":              {func(c *NodeConfiguration) { c.Node.Taints[0].Key = "" }, "node.taints[0].key"},
		"a bad taint value":            {func(c *NodeConfiguration) { c.Node.Taints[0].Value = "a,b=c" }, "node.taints[0].value"},
		"a bad taint effect":           {func(c *NodeConfiguration) { c.Node.Taints[0].Effect = "NoRun" }, "node.taints[0].effect"},
		"a taint with a time":          {func(c *NodeConfiguration) { c.Node.Taints[0].TimeAdded = &now }, "node.taints[0].timeAdded"},
		"a taint twice":                {func(c *NodeConfiguration) { c.Node.Taints = append(c.Node.Taints, c.Node.Taints...) }, "node.taints[1]"},
		"no provider ID source":        {func(c *NodeConfiguration) { c.Node.ProviderID = "" }, "node.providerID"},
		"no endpoint":                  {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "" }, "join.apiServerEndpoint"},
		"an endpoint without port":     {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "prod.example.com" }, "join.apiServerEndpoint"},
		"an endpoint without host":     {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = ":6443" }, "join.apiServerEndpoint"},
		"an endpoint with a scheme":    {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "https://prod:6443" }, "join.apiServerEndpoint"},
		"an endpoint with a zone":      {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "[fe80::1%eth0]:6443" }, "join.apiServerEndpoint"},
		"port 0":                       {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "prod:0" }, "join.apiServerEndpoint"},
		"port 65536":                   {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "prod:65536" }, "join.apiServerEndpoint"},
		"a port with a zero":           {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "prod:0443" }, "join.apiServerEndpoint"},
		"a port with a name":           {func(c *NodeConfiguration) { c.Join.APIServerEndpoint = "prod:https" }, "join.apiServerEndpoint"},
		"no CA":                        {func(c *NodeConfiguration) { c.Join.CACertHashes = nil }, "join.caCertHashes"},
		"a CA hash without algorithm":  {func(c *NodeConfiguration) { c.Join.CACertHashes[0] = strings.Repeat("0", 64) }, "join.caCertHashes[0]"},
		"a CA hash of another length":  {func(c *NodeConfiguration) { c.Join.CACertHashes[0] += "0" }, "join.caCertHashes[0]"},
		"a CA hash in capitals":        {func(c *NodeConfiguration) { c.Join.CACertHashes[0] = "sha256:" + strings.Repeat("A", 64) }, "join.caCertHashes[0]"},
		"no token":                     {func(c *NodeConfiguration) { c.Join.Token = "" }, "join.token"},
		"half a token":                 {func(c *NodeConfiguration) { c.Join.Token = "abcdef" }, "join.token"},
		"a token in capitals":          {func(c *NodeConfiguration) { c.Join.Token = "ABCDEF.0123456789abcdef" }, "join.token"},
		"a token with a line end":      {func(c *NodeConfiguration) { c.Join.Token = "abcdef.0123456789abcde\n" }, "join.token"},
	} {
		c := valid()
		tc.change(c)
		err := c.Validate()
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.HasPrefix(err.Error(), tc.field+": ") && !strings.HasPrefix(err.Error(), "["+tc.field+": ") {
			t.Errorf("%s: the error does not name %s: %v", name, tc.field, err)
		}
	}
}

func TestValidateNamesEverythingThatIsWrongAndNoSecret(t *testing.T) {
	c := &NodeConfiguration{Join: JoinInfo{Token: "secret.secretsecret"}}
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{
		"apiVersion", "kind", "cluster.namespace", "cluster.name", "cluster.kubernetesVersion",
		"node.name", "node.providerID", "join.apiServerEndpoint", "join.caCertHashes", "join.token",
	} {
		if !strings.Contains(err.Error(), field+": ") {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
	if strings.Contains(err.Error(), "secretsecret") {
		t.Errorf("the error has the token in it: %v", err)
	}
}
