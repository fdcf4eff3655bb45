package cmd

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

func TestManagerOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		errors []string // nil: accepted
		lease  string
	}{
		"run both providers by default":           {lease: "capw-manager-leader-election"},
		"run the bootstrap provider alone":        {args: []string{"--providers=bootstrap"}, lease: "capw-bootstrap-manager-leader-election"},
		"run the infrastructure provider alone":   {args: []string{"--providers=infrastructure"}, lease: "capw-infrastructure-manager-leader-election"},
		"refuse an unknown provider":              {args: []string{"--providers=control-plane"}, errors: []string{`"control-plane"`, "use bootstrap, infrastructure or both"}},
		"refuse to run nothing":                   {args: []string{"--providers="}, errors: []string{"--providers is empty"}},
		"refuse a token that no first boot meets": {args: []string{"--bootstrap-token-ttl=1m"}, errors: []string{"--bootstrap-token-ttl 1m0s", "at least 5m"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := newManagerOptions()
			fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
			o.addFlags(fs)
			g.Expect(fs.Parse(tc.args)).To(Succeed())
			err := o.validate()
			if tc.errors == nil {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.leaderElectionID()).To(Equal(tc.lease))
				return
			}
			for _, part := range tc.errors {
				g.Expect(err).To(MatchError(ContainSubstring(part)))
			}
		})
	}
}

func TestB32NamespaceLimitsWhatTheManagerSees(t *testing.T) {
	for _, namespace := range []string{"", "team-a"} {
		g := NewWithT(t)
		o := newManagerOptions()
		fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
		o.addFlags(fs)
		g.Expect(fs.Parse([]string{"--namespace=" + namespace})).To(Succeed())
		if namespace == "" {
			g.Expect(cacheOptions(o).DefaultNamespaces).To(BeEmpty(), "all namespaces")
			continue
		}
		g.Expect(cacheOptions(o).DefaultNamespaces).To(And(HaveLen(1), HaveKey(namespace)))
	}
}

func TestTokensOutlastAWindowsFirstBootByDefault(t *testing.T) {
	g := NewWithT(t)
	o := newManagerOptions()
	o.addFlags(pflag.NewFlagSet("manager", pflag.ContinueOnError))
	g.Expect(o.bootstrapTokenTTL).To(Equal(time.Hour))
}

func TestVersionIsPrintedForPeopleAndPrograms(t *testing.T) {
	for flag, want := range map[string]string{"": "v0.0.0-dev (", "--json": `"version":"v0.0.0-dev"`} {
		g := NewWithT(t)
		var out strings.Builder
		root := NewRoot()
		root.SetOut(&out)
		root.SetArgs(strings.Fields("version " + flag))
		g.Expect(root.Execute()).To(Succeed())
		g.Expect(out.String()).To(ContainSubstring(want))
	}
}
