//go:build windows

package winhost

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func testKey(t *testing.T) string {
	t.Helper()
	key := agentKey + `\` + unique("Test")
	cleanUp(t, func(ctx context.Context) error { return newRegistry().DeleteKey(ctx, key) })
	return key
}

func TestRegistryKeepsValuesOfEachType(t *testing.T) {
	r, key := newRegistry(), testKey(t)
	for name, v := range map[string]host.Value{
		"":             host.StringValue("the default value"),
		"string":       host.StringValue(`C:\Ä €`),
		"empty":        host.StringValue(""),
		"expand":       {Type: host.ExpandString, Text: `%SystemRoot%\x`},
		"multi":        {Type: host.MultiString, Texts: []string{"A=1", "B=2"}},
		"multi, empty": {Type: host.MultiString},
		"dword":        host.DWordValue(1<<32 - 1),
		"qword":        {Type: host.QWord, Number: 1<<64 - 1},
		"binary":       {Type: host.Binary, Bytes: []byte{0, 1, 255}},
		"large":        {Type: host.Binary, Bytes: make([]byte, 10_000)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(r.Set(t.Context(), key+`\Sub\Deep`, name, host.StringValue("another one"))).To(Succeed())
			for range 2 {
				g.Expect(r.Set(t.Context(), key+`\Sub\Deep`, name, v)).To(Succeed())
			}
			got, err := r.Get(t.Context(), key+`\sub\DEEP`, name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(equalValues(got, v)).To(BeTrue(), "%#v", got)
			for range 2 {
				g.Expect(r.Delete(t.Context(), key+`\Sub\Deep`, name)).To(Succeed())
			}
			_, err = r.Get(t.Context(), key+`\Sub\Deep`, name)
			g.Expect(err).To(MatchError(host.ErrNotFound))
		})
	}
}

func TestRegistryListsAndDeletesKeys(t *testing.T) {
	g := NewWithT(t)
	r, key := newRegistry(), testKey(t)
	_, _, err := r.Names(t.Context(), key)
	g.Expect(err).To(MatchError(host.ErrNotFound))
	for _, sub := range []string{`\b\one`, `\b\two`, `\a`} {
		g.Expect(r.Set(t.Context(), key+sub, "v", host.DWordValue(1))).To(Succeed())
	}
	g.Expect(r.Set(t.Context(), key, "z", host.DWordValue(1))).To(Succeed())
	g.Expect(r.Set(t.Context(), key, "y", host.DWordValue(1))).To(Succeed())
	values, subkeys, err := r.Names(t.Context(), key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(values).To(Equal([]string{"y", "z"}))
	g.Expect(subkeys).To(Equal([]string{"a", "b"}))
	for range 2 {
		g.Expect(r.DeleteKey(t.Context(), key+`\b`)).To(Succeed())
	}
	_, subkeys, err = r.Names(t.Context(), key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(subkeys).To(Equal([]string{"a"}))
	g.Expect(r.Delete(t.Context(), key+`\b`, "v")).To(Succeed())
}

func TestRegistryRefusesWhatItCannotKeep(t *testing.T) {
	g := NewWithT(t)
	r, key := newRegistry(), testKey(t)
	g.Expect(r.Set(t.Context(), key, "v", host.Value{Type: host.DWord, Number: 1 << 32})).To(MatchError(host.ErrInvalid))
	g.Expect(r.Set(t.Context(), key, "v", host.Value{Type: "Word"})).To(MatchError(host.ErrInvalid))
	g.Expect(r.Set(t.Context(), `HKCU\Software\x`, "v", host.DWordValue(1))).To(MatchError(host.ErrInvalid))
	g.Expect(r.DeleteKey(t.Context(), `HKLM`)).To(MatchError(host.ErrInvalid))
	_, err := r.Get(t.Context(), "HKLM\\a\x00b", "v")
	g.Expect(errors.Is(err, host.ErrInvalid)).To(BeTrue())
}
