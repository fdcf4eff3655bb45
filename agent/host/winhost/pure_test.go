package winhost

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// structure returns an SMBIOS structure.
func structure(kind byte, formatted []byte, texts ...string) []byte {
	b := append([]byte{kind, byte(structureHeader + len(formatted)), 0, 0}, formatted...)
	for _, text := range texts {
		b = append(append(b, text...), 0)
	}
	if len(texts) == 0 {
		b = append(b, 0)
	}
	return append(b, 0)
}

// firmware returns a table as Windows gives it.
func firmware(structures ...[]byte) []byte {
	raw := []byte{0, 2, 7, 0, 0, 0, 0, 0}
	for _, s := range structures {
		raw = append(raw, s...)
	}
	binary.LittleEndian.PutUint32(raw[4:], uint32(len(raw)-rawHeader))
	return raw
}

// systemStructure: maker 1, product 2, version 3, serial 4, UUID, wake-up, SKU, family.
func systemStructure(uuid [16]byte, texts ...string) []byte {
	formatted := append([]byte{1, 2, 3, 4}, uuid[:]...)
	return structure(1, append(formatted, 6, 0, 0), texts...)
}

func TestSMBIOSNamesThePlatform(t *testing.T) {
	uuid := [16]byte{0x42, 0x30, 0x57, 0x8a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	bios := structure(0, make([]byte, 14), "VMware, Inc.", "VMW71")
	end := structure(127, nil)
	serial := "VMware-42 30 57 8a 01 02 03 04-05 06 07 08 09 0a 0b 0c"
	for name, test := range map[string]struct {
		raw  []byte
		want platform
		err  string
	}{
		"vSphere": {
			firmware(bios, systemStructure(uuid, "VMware, Inc.", "VMware7,1", "None", serial), end),
			platform{uuid, "VMware, Inc.", "VMware7,1", serial}, "",
		},
		"blanks around texts": {
			firmware(systemStructure(uuid, " Xen ", "HVM domU  ", "4.11", "ec2-x "), end),
			platform{uuid, "Xen", "HVM domU", "ec2-x"}, "",
		},
		"texts that are missing": {
			firmware(systemStructure(uuid, "Maker"), end), platform{uuid, "Maker", "", ""}, "",
		},
		"no text at all": {
			firmware(structure(1, append(append([]byte{0, 0, 0, 0}, uuid[:]...), 6, 0, 0)), end), platform{uuid: uuid}, "",
		},
		"SMBIOS 2.0, without UUID": {
			firmware(structure(1, []byte{1, 2, 3, 4}, "A", "B", "C", "D"), end), platform{manufacturer: "A", product: "B", serial: "D"}, "",
		},
		"what follows the length is not read": {
			append(firmware(bios), systemStructure(uuid, "A", "B", "C", "D")...), platform{}, "no structure of type 1",
		},
		"no system information":      {firmware(bios, end), platform{}, "no structure of type 1"},
		"after the end of the table": {firmware(end, systemStructure(uuid, "A")), platform{}, "no structure of type 1"},
		"empty":                      {nil, platform{}, "table of 0 bytes"},
		"no structure":               {firmware(), platform{}, "no structure of type 1"},
		"structure of no length":     {firmware([]byte{1, 0, 0, 0}), platform{}, "says that it has 0 bytes"},
		"structure beyond the end":   {firmware([]byte{1, 200, 0, 0, 1}), platform{}, "says that it has 200 bytes, of 5 left"},
		"too short":                  {firmware(structure(1, []byte{1})), platform{}, "System Information of 5 bytes"},
		"texts without an end": {
			firmware([]byte{1, 8, 0, 0, 1, 0, 0, 0, 'A'}), platform{manufacturer: "A"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := parseSMBIOS(test.raw)
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			}
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func FuzzSMBIOSNeverPanics(f *testing.F) {
	f.Add(firmware(systemStructure([16]byte{1}, "A", "B", "C", "D")))
	f.Add([]byte{0, 0, 0, 0, 255, 255, 255, 255, 1, 4, 0, 0})
	f.Fuzz(func(_ *testing.T, raw []byte) { _, _ = parseSMBIOS(raw) })
}

func TestAccessControlIsRecognizedAsWindowsWritesIt(t *testing.T) {
	same := func(sddl string) string { return sddl }
	for name, test := range map[string]struct {
		descriptor string
		folder     bool
		want       host.ACL
	}{
		"ours":                   {"D:P(A;;FA;;;SY)(A;;FA;;;BA)", false, host.ACLSystem},
		"with owner and group":   {"O:BAG:SYD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)", true, host.ACLSystem},
		"with audit":             {"D:P(A;;FA;;;SY)(A;;FA;;;BA)S:AI(AU;SA;FA;;;WD)", false, host.ACLSystem},
		"in another order":       {"D:P(A;;FA;;;BA)(A;;FA;;;SY)", false, host.ACLSystem},
		"users may read":         {"D:PAI(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)(A;OICI;FA;;;SY)", true, host.ACLUsersRead},
		"not protected":          {"D:AI(A;;FA;;;SY)(A;;FA;;;BA)", false, host.ACLInherited},
		"inherited":              {"D:AI(A;ID;FA;;;SY)(A;ID;FA;;;BA)", false, host.ACLInherited},
		"one entry more":         {"D:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;FA;;;WD)", false, host.ACLInherited},
		"one entry less":         {"D:P(A;;FA;;;SY)", false, host.ACLInherited},
		"not handed on":          {"D:P(A;;FA;;;SY)(A;;FA;;;BA)", true, host.ACLInherited},
		"no access control list": {"O:BA", false, host.ACLInherited},
		"nothing":                {"", false, host.ACLInherited},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(aclOf(test.descriptor, test.folder, same)).To(Equal(test.want))
		})
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	for _, test := range []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"ab"}, "ab"},
		{[]string{"abcd"}, "abcd"},
		{[]string{"ab", "cde"}, "bcde"},
		{[]string{"abcdefgh"}, "efgh"},
		{[]string{"a", "b", "c", "d", "e", "f"}, "cdef"},
		{[]string{"abc", "defg", ""}, "defg"},
	} {
		g := NewWithT(t)
		kept := &tail{limit: 4}
		for _, w := range test.writes {
			n, err := kept.Write([]byte(w))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(n).To(Equal(len(w)))
		}
		g.Expect(string(kept.kept)).To(Equal(test.want))
	}
}

func TestOnlyReplacedFilesWaitForAReboot(t *testing.T) {
	g := NewWithT(t)
	g.Expect(replacesFiles(nil)).To(BeFalse())
	g.Expect(replacesFiles([]string{`\??\C:\a`, ""})).To(BeFalse())
	g.Expect(replacesFiles([]string{`\??\C:\a`, "", `\??\C:\b`, `!\??\C:\c`})).To(BeTrue())
	g.Expect(replacesFiles([]string{`\??\C:\a`})).To(BeFalse())
}

func TestGuestInfoRequestsAreOneArgument(t *testing.T) {
	g := NewWithT(t)
	g.Expect(guestInfoSet("guestinfo.capw.status", `{"phase": "Join"}`)).To(Equal(`info-set guestinfo.capw.status {"phase": "Join"}`))
	g.Expect(guestInfoGet("guestinfo.capw.status")).To(Equal("info-get guestinfo.capw.status"))
	for _, key := range []string{"", "guestinfo.", "machine.id", "guestinfo.a b", "guestinfo.a\nb"} {
		_, err := guestInfoGet(key)
		g.Expect(errors.Is(err, host.ErrInvalid)).To(BeTrue(), key)
		_, err = guestInfoSet(key, "x")
		g.Expect(errors.Is(err, host.ErrInvalid)).To(BeTrue(), key)
	}
	_, err := guestInfoSet("guestinfo.a", strings.Repeat("x", guestInfoLimit+1))
	g.Expect(errors.Is(err, host.ErrInvalid)).To(BeTrue())
	g.Expect(noSuchGuestInfo("vmtoolsd.exe: No value found\r\n")).To(BeTrue())
}
