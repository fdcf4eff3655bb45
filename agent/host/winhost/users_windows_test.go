//go:build windows

package winhost

import (
	"context"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Under Wine an account lives in the process that made it, has no SID, groups or profile, and NetUserSetInfo ends the
// process; so groups, profile, full name, and changes of an account are seen on Windows only.
func TestAUserIsMadeOnceAndDeleted(t *testing.T) {
	g := NewWithT(t)
	u := newUsers(newRegistry())
	name := unique("u")
	t.Cleanup(func() { _ = u.Delete(context.Background(), name) })

	_, err := u.Get(t.Context(), name)
	g.Expect(err).To(MatchError(host.ErrNotFound))
	want := host.User{Name: name, Groups: []string{"Administrators", host.AdministratorsSID}}
	g.Expect(u.Apply(t.Context(), want)).To(Succeed())
	g.Expect(u.Apply(t.Context(), want)).To(Succeed())
	got, err := u.Get(t.Context(), name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Name).To(Equal(name))
	g.Expect(got.Password).To(BeEmpty())
	g.Expect(got.Disabled).To(BeFalse())
	if !lenient() {
		g.Expect(got.Groups).To(ContainElement(host.AdministratorsSID))
		g.Expect(got.ProfileDir).To(BeADirectory())
		want.FullName, want.Password, want.Disabled = "A Name", "Pa55word-"+unique(""), true
		g.Expect(u.Apply(t.Context(), want)).To(Succeed())
		got, err = u.Get(t.Context(), name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.FullName).To(Equal("A Name"))
		g.Expect(got.Disabled).To(BeTrue())
	}

	g.Expect(u.Delete(t.Context(), name)).To(Succeed())
	g.Expect(u.Delete(t.Context(), name)).To(Succeed())
	_, err = u.Get(t.Context(), name)
	g.Expect(err).To(MatchError(host.ErrNotFound))
}

func TestTheProfileOfTheOneWhoAsksIsWhereWindowsSays(t *testing.T) {
	g := NewWithT(t)
	got, err := newUsers(newRegistry()).Get(t.Context(), os.Getenv("USERNAME"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.ToLower(got.ProfileDir)).To(Equal(strings.ToLower(os.Getenv("USERPROFILE"))))
	g.Expect(got.Groups).To(ContainElement(host.AdministratorsSID), "the tests need an administrator")
}

func TestGroupsAreCalledAsThisWindowsCallsThem(t *testing.T) {
	g := NewWithT(t)
	byName, err := groupName("administrators")
	g.Expect(err).NotTo(HaveOccurred())
	bySID, err := groupName(host.AdministratorsSID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(byName).To(Equal(bySID))
	g.Expect(byName).NotTo(BeEmpty())
	_, err = groupName("S-1-x")
	g.Expect(err).To(MatchError(host.ErrInvalid))
	other, err := groupName("docker-users")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other).To(Equal("docker-users"))
}

func TestAUserWithABadNameIsRefusedBeforeWindowsIsAsked(t *testing.T) {
	NewWithT(t).Expect(newUsers(newRegistry()).Apply(t.Context(), host.User{Name: "a/b"})).To(MatchError(host.ErrInvalid))
}
