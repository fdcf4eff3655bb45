package winhost

import (
	"strings"
	"testing"
	"unicode"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func TestGroupsAreFoundByTheirEnglishNameInEveryLanguage(t *testing.T) {
	for group, sid := range map[string]string{
		"Administrators":       host.AdministratorsSID,
		"administrators":       host.AdministratorsSID,
		"Remote Desktop Users": "S-1-5-32-555",
		"S-1-5-32-544":         "S-1-5-32-544",
		"s-1-5-32-544":         "S-1-5-32-544",
		"docker-users":         "",
		"Administratoren":      "",
		"S-1":                  "",
		"":                     "",
	} {
		NewWithT(t).Expect(groupSID(group)).To(Equal(sid), group)
	}
}

func TestAnAccountKeepsTheFlagsThatNobodyAskedFor(t *testing.T) {
	g := NewWithT(t)
	g.Expect(accountFlags(newAccountFlags, host.User{})).To(Equal(uint32(0x10201)))
	g.Expect(accountFlags(newAccountFlags, host.User{Disabled: true})).To(Equal(uint32(0x10203)))
	g.Expect(accountFlags(0x221, host.User{Disabled: true})).To(Equal(uint32(0x223)))
	g.Expect(accountFlags(0x223, host.User{})).To(Equal(uint32(0x221)))
	g.Expect(accountFlags(0x221, host.User{})).To(Equal(uint32(0x221)))
}

func TestAUserThatCannotBeIsRefusedWithoutItsPassword(t *testing.T) {
	for name, u := range map[string]host.User{
		"no name":          {},
		"21 characters":    {Name: strings.Repeat("a", 21)},
		"with a domain":    {Name: `corp\bob`},
		"with an at":       {Name: "bob@corp"},
		"only dots":        {Name: "..."},
		"NUL in password":  {Name: "bob", Password: "secret\x00"},
		"NUL in full name": {Name: "bob", FullName: "B\x00", Password: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := checkUser(u)
			g.Expect(err).To(MatchError(host.ErrInvalid))
			g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
		})
	}
	NewWithT(t).Expect(checkUser(host.User{Name: "jürgen.müller", Password: `a"b\c`})).To(Succeed())
}

func TestAPasswordThatNobodyKnowsMeetsTheComplexityOfWindows(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]bool{}
	for range 200 {
		p, err := randomPassword()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p).To(HaveLen(32))
		classes := map[string]bool{}
		for _, r := range p {
			switch {
			case unicode.IsLower(r):
				classes["lower"] = true
			case unicode.IsUpper(r):
				classes["upper"] = true
			case unicode.IsDigit(r):
				classes["digit"] = true
			default:
				classes["other"] = true
			}
		}
		g.Expect(classes).To(HaveLen(4))
		g.Expect(seen[p]).To(BeFalse())
		seen[p] = true
	}
}

func TestADomainIsKnownByBothItsNames(t *testing.T) {
	g := NewWithT(t)
	names := domainNames{dns: "corp.example", netBIOS: "CORP"}
	for _, name := range []string{"corp.example", "Corp.Example", "corp.example.", "corp"} {
		g.Expect(names.is(name)).To(BeTrue(), name)
	}
	for _, name := range []string{"", "example", "lab.example"} {
		g.Expect(names.is(name)).To(BeFalse(), name)
	}
	g.Expect(domainNames{}.is("")).To(BeFalse())
	g.Expect(names.name()).To(Equal("corp.example"))
	g.Expect(domainNames{netBIOS: "CORP"}.name()).To(Equal("CORP"))
	g.Expect(domainNames{}.name()).To(BeEmpty())
}
