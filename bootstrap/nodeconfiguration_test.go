package bootstrap

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// goodInput is the least that makes a node.
func goodInput() Input {
	return Input{
		Config: &bootstrapv1.WindowsConfig{},
		Machine: &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "md-win-abcde-fghij"},
			Spec:       clusterv1.MachineSpec{Version: "v1.36.3"},
		},
		Cluster: &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod"},
			Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}},
		},
		CACertHashes: []string{caPin},
		Token:        "abcdef.0123456789abcdef",
	}
}

func TestNodeConfigurationOfAPlainWorker(t *testing.T) {
	got, err := NodeConfiguration(goodInput())
	if err != nil {
		t.Fatal(err)
	}
	want := &nodev1.NodeConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "node.windows.cluster.x-k8s.io/v1alpha1", Kind: "NodeConfiguration"},
		Cluster:  nodev1.ClusterInfo{Namespace: "team", Name: "prod", KubernetesVersion: "v1.36.3"},
		Node: nodev1.NodeInfo{
			Name: ComputerName("team", "prod", "md-win-abcde-fghij"),
			Taints: []corev1.Taint{
				{Key: "os", Value: "windows", Effect: "NoSchedule"},
				{Key: "node.cluster.x-k8s.io/uninitialized", Effect: "NoSchedule"},
			},
			ProviderID: "Auto",
		},
		Join: nodev1.JoinInfo{APIServerEndpoint: "10.0.0.1:6443", CACertHashes: []string{caPin}, Token: "abcdef.0123456789abcdef"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the node itself refuses it: %v", err)
	}
}

func TestNodeConfiguration(t *testing.T) {
	uninitialized := corev1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: "NoSchedule"}
	for _, tc := range []struct {
		name   string
		change func(*Input)
		check  func(*nodev1.NodeConfiguration) (got, want any)
	}{
		{
			name:   "B28: an empty list of taints leaves only the uninitialized taint",
			change: func(in *Input) { in.Config.Spec.Node.Taints = &[]bootstrapv1.Taint{} },
			check: func(d *nodev1.NodeConfiguration) (any, any) {
				return d.Node.Taints, []corev1.Taint{uninitialized}
			},
		},
		{
			name: "B28: given taints replace the default and the uninitialized taint is added once",
			change: func(in *Input) {
				in.Config.Spec.Node.Taints = &[]bootstrapv1.Taint{
					{Key: "example.com/gpu", Value: ptr.To("yes"), Effect: "NoExecute"},
					{Key: "example.com/gpu", Effect: "NoSchedule"},
				}
			},
			check: func(d *nodev1.NodeConfiguration) (any, any) {
				return d.Node.Taints, []corev1.Taint{
					{Key: "example.com/gpu", Value: "yes", Effect: "NoExecute"}, {Key: "example.com/gpu", Effect: "NoSchedule"}, uninitialized}
			},
		},
		{
			name:   "B29: providerID None is passed on",
			change: func(in *Input) { in.Config.Spec.Node.ProviderID = bootstrapv1.ProviderIDNone },
			check:  func(d *nodev1.NodeConfiguration) (any, any) { return d.Node.ProviderID, "None" },
		},
		{
			name:   "labels are passed on",
			change: func(in *Input) { in.Config.Spec.Node.Labels = map[string]string{"example.com/zone": "a"} },
			check: func(d *nodev1.NodeConfiguration) (any, any) {
				return d.Node.Labels, map[string]string{"example.com/zone": "a"}
			},
		},
		{
			name:   "B21: the version gets the leading v that the Machine may lack",
			change: func(in *Input) { in.Machine.Spec.Version = "1.35.0+vendor.1" },
			check: func(d *nodev1.NodeConfiguration) (any, any) {
				return d.Cluster.KubernetesVersion, "v1.35.0+vendor.1"
			},
		},
		{
			name: "B20: the given endpoint replaces the Cluster's",
			change: func(in *Input) {
				in.Config.Spec.Join.APIServerEndpoint = clusterv1.APIEndpoint{Host: "api.example.com", Port: 443}
			},
			check: func(d *nodev1.NodeConfiguration) (any, any) { return d.Join.APIServerEndpoint, "api.example.com:443" },
		},
		{
			name:   "B20: a given host keeps the Cluster's port",
			change: func(in *Input) { in.Config.Spec.Join.APIServerEndpoint.Host = "2001:db8::1" },
			check:  func(d *nodev1.NodeConfiguration) (any, any) { return d.Join.APIServerEndpoint, "[2001:db8::1]:6443" },
		},
		{
			name:   "B20: a given port keeps the Cluster's host",
			change: func(in *Input) { in.Config.Spec.Join.APIServerEndpoint.Port = 8443 },
			check:  func(d *nodev1.NodeConfiguration) (any, any) { return d.Join.APIServerEndpoint, "10.0.0.1:8443" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := goodInput()
			tc.change(&in)
			before := in.Config.DeepCopy()
			doc, err := NodeConfiguration(in)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := tc.check(doc); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if err := doc.Validate(); err != nil {
				t.Errorf("the node itself refuses it: %v", err)
			}
			if !reflect.DeepEqual(before, in.Config) {
				t.Error("the WindowsConfig was changed")
			}
		})
	}
}

func TestNodeConfigurationNamesWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Input)
		want   string
	}{
		{"B21: no version", func(in *Input) { in.Machine.Spec.Version = "" }, "Machine.spec.version: Required value"},
		{"B21: a version that is none", func(in *Input) { in.Machine.Spec.Version = "latest" }, `Machine.spec.version: Invalid value: "latest"`},
		{"B20: no endpoint", func(in *Input) { in.Cluster.Spec.ControlPlaneEndpoint.Port = 0 }, "spec.join.apiServerEndpoint: Required value"},
		{"B20: no CA", func(in *Input) { in.CACertHashes = nil }, "caCertHashes: Required value"},
		{"no token", func(in *Input) { in.Token = "" }, "token: Invalid value"},
		{"B30: a label that a node may not set", func(in *Input) {
			in.Config.Spec.Node.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
		}, `spec.node.labels[node-role.kubernetes.io/worker]: Forbidden`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := goodInput()
			tc.change(&in)
			doc, err := NodeConfiguration(in)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
			if doc != nil {
				t.Errorf("got a document in spite of the error")
			}
		})
	}
}

func TestNodeConfigurationErrorsHideTheToken(t *testing.T) {
	in := goodInput()
	in.Token = "abcdef.too-short-secret"
	if _, err := NodeConfiguration(in); err == nil || strings.Contains(err.Error(), "too-short") {
		t.Errorf("got %v", err)
	}
}
