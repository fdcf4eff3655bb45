package bootstrap

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// label is RFC 1123's, of at most 15 characters.
var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$`)

func TestComputerName(t *testing.T) {
	for _, tc := range []struct{ why, machine, want string }{
		{"a short name is kept", "win-1", "win-1"},
		{"a name of 15 characters is kept", "win-abcde-fghij", "win-abcde-fghij"},
		{"a name of 15 characters without a dash is kept", "abcdefghijklmno", "abcdefghijklmno"},
		{"a name that only begins like a reserved one is kept", "server1", "server1"},
		{"a name that begins with a digit is kept", "2022-a", "2022-a"},

		{"a name of 16 characters is hashed", "md-0-abcde-fghij", "md-0-igw87qdjqf"},
		{"a long name is hashed", "prod-cluster-windows-md-0-x7k2p-abcde", "prod-ki54itvck1"},
		{"its last characters count", "prod-cluster-windows-md-0-x7k2p-abcdf", "prod-h2nuvbojar"},
		{"a dash at the end of the prefix is cut", "w---------------------", "w-eq5t8rn1oy7py"},
		{"a name that looks hashed is hashed", "win-0123456789a", "win-0-e659zvx22"},
		{"a hashed name is hashed", "prod-ki54itvck1", "prod-a0og41rryn"},
		{"dots are replaced", "a.b.example.com", "a-b-e-j7dslpwcq"},
		{"upper case is not kept", "WIN-1", "win-1-t9c07udyi"},
		{"digits only are hashed", "20220101", "20220-xygi1t8bb"},
		{"a reserved word is hashed", "network", "netwo-ow0yta0it"},
		{"a device is hashed", "com1", "com1-292293yh1e"},
		{"an account is hashed", "administrator", "admin-t15p8rwe8"},
		{"an abbreviated security identifier is hashed", "ba", "ba-pid1uti5qzzp"},
		{"one character is hashed", "a", "a-wbh5in17b71dc"},
		{"a dash at the end is hashed", "win-", "win-thrhundux2s"},
		{"nothing is hashed", "", "win-eurvbwoofud"},
		{"foreign letters are dropped", "日本語", "win-57d7edlw076"},
	} {
		if got := ComputerName("default", "prod", tc.machine); got != tc.want {
			t.Errorf("%s: ComputerName of %q is %q, want %q", tc.why, tc.machine, got, tc.want)
		}
	}
}

func TestComputerNameOfHashedNamesDependsOnNamespaceAndCluster(t *testing.T) {
	const machine = "windows-workers-x7k2p-abcde"
	seen := map[string]string{}
	for _, where := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "c"}, {"ab", ""}, {"", "ab"}, {"a/b", "c"}, {"a", "b/c"}, {"a,1:b", ""}} {
		name := ComputerName(where[0], where[1], machine)
		if other, ok := seen[name]; ok {
			t.Errorf("%q is the name in %q and in %s", name, where, other)
		}
		seen[name] = fmt.Sprintf("%q", where)
	}
}

func TestComputerNameIsUniqueAmongAMillionMachines(t *testing.T) {
	const clusters, machines = 100, 10_000
	random := rand.New(rand.NewPCG(1, 2))
	// As Cluster API makes them (k8s.io/apiserver/pkg/storage/names).
	suffix := func() string {
		const alphanums = "bcdfghjklmnpqrstvwxz2456789"
		b := make([]byte, 5)
		for i := range b {
			b[i] = alphanums[random.IntN(len(alphanums))]
		}
		return string(b)
	}
	deployments := []string{"md-0", "windows", "win", "prod-eu-west-1-windows-2022-md-0", "w.2022", strings.Repeat("a", 50)}
	for c := range clusters {
		cluster := fmt.Sprintf("cluster-%d", c)
		given := make(map[string]bool, machines)
		taken := make(map[string]string, machines)
		for m := 0; len(given) < machines; m++ {
			var machine string
			switch m % 8 {
			case 6: // a name by hand, close to its neighbours
				machine = fmt.Sprintf("win-%09d", m)
			case 7: // the computer name of another machine
				machine = ComputerName("default", cluster, fmt.Sprintf("md-0-abcde-%05d", m))
			default:
				machine = deployments[m%8] + "-" + suffix() + "-" + suffix()
			}
			if given[machine] {
				continue
			}
			given[machine] = true
			name := ComputerName("default", cluster, machine)
			if other, ok := taken[name]; ok {
				t.Fatalf("%s: machines %q and %q are both %q", cluster, machine, other, name)
			}
			taken[name] = machine
			if m < 1000 { // the regular expression is what costs time
				checkComputerName(t, machine, name)
			}
		}
	}
}

func FuzzComputerName(f *testing.F) {
	for _, s := range []string{
		"", "a", "ba", "win-1", "win-", "-win", "win-abcde-fghij", "win-0123456789a", "abcdefghijklmno", "md-0-abcde-fghij",
		"12345", "123456789012345", "server", "com1", "a.b", "ÀÉ", "\xff\xfe", "K", "w---------------", strings.Repeat("0", 300),
	} {
		f.Add("default", "prod", s, "prod-cluster-windows-md-0-x7k2p-abcde")
	}
	f.Fuzz(func(t *testing.T, namespace, cluster, machine, other string) {
		name := ComputerName(namespace, cluster, machine)
		checkComputerName(t, machine, name)
		if name != machine && ComputerName(namespace, cluster, name) == name {
			t.Errorf("%q became %q, which another machine may have as its own name", machine, name)
		}
		if machine != other && ComputerName(namespace, cluster, other) == name {
			t.Errorf("%q and %q are both %q", machine, other, name)
		}
	})
}

func checkComputerName(t *testing.T, machine, name string) {
	t.Helper()
	switch {
	case !label.MatchString(name):
		t.Errorf("%q became %q, which is no label of at most 15 characters", machine, name)
	case len(nodev1.ValidateComputerName(name)) > 0:
		t.Errorf("%q became %q, which a node document refuses: %v", machine, name, nodev1.ValidateComputerName(name))
	case len(name) < 3:
		t.Errorf("%q became %q, which is too short", machine, name)
	case strings.Trim(name, "0123456789") == "":
		t.Errorf("%q became %q, which is all digits", machine, name)
	case reserved(name):
		t.Errorf("%q became %q, which is reserved", machine, name)
	case name != machine && len(name) != 15:
		t.Errorf("%q became %q, which has not 15 characters", machine, name)
	}
}

func BenchmarkComputerName(b *testing.B) {
	for b.Loop() {
		ComputerName("default", "prod", "prod-cluster-windows-md-0-x7k2p-abcde")
	}
}
