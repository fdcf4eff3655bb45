package servicelog_test

import (
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	"github.com/capw-dev/cluster-api-provider-windows/agent/servicelog"
)

func TestLastErrorIsTheLineThatAPersonLooksFor(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"klog, with usage behind it": {"I1130 12:00:00 1 a.go:1] starting\nE1130 12:00:01 1 run.go:72] failed\nUsage:\n  kubelet\n", "E1130 12:00:01 1 run.go:72] failed"},
		"the last of several":        {"E1130 first\nF1130 12:00:01 second\n", "F1130 12:00:01 second"},
		"containerd":                 {"time=x level=error msg=\"no pipe\"\r\ntime=y level=info msg=bye\r\n", `time=x level=error msg="no pipe"`},
		"kubeadm":                    {"error: no\nTo see the stack trace\n", "error: no"},
		"a word is no error":         {"errors: 0\nerrorless\nfine\n", "fine"},
		"no error":                   {"one\ntwo\n\n", "two"},
		"nothing":                    {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(servicelog.LastError([]byte(c.log), nil)).To(Equal(c.want))
		})
	}
}

func TestLastErrorHasNoSecretAlsoWhereItIsCut(t *testing.T) {
	g := NewWithT(t)
	secret := "abcdef.0123456789abcdef"
	g.Expect(servicelog.LastError([]byte("error: token "+secret+" is bad"), []string{"", secret})).To(Equal("error: token <hidden> is bad"))
	long := servicelog.LastError([]byte("error: "+strings.Repeat("ü", 195)+secret), []string{secret})
	g.Expect(long).NotTo(ContainSubstring("abcdef"))
	g.Expect(long).To(HaveSuffix("..."))
}

func TestLastReadsTheEndOfALargeLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := sim.New(sim.Options{Files: map[string]string{
			layout.Log("kubelet"): "error: long ago\n" + strings.Repeat("I0101 noise\n", 10000) + "the end\n",
		}})
		m.PowerOn(t.Context())
		defer m.PowerOff()
		g.Expect(servicelog.Last(t.Context(), m.Host().Files, "kubelet", nil)).To(Equal("the end"))
		g.Expect(servicelog.Last(t.Context(), m.Host().Files, "none", nil)).To(BeEmpty())
	})
}
