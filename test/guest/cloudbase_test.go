package guest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
)

func packed(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// The rows follow what the real cloudbase-init does with the same values.
func TestGuestInfoIsDecodedAsCloudbaseInitDoes(t *testing.T) {
	const meta = "instance-id: i-1\nlocal-hostname: w-1\n"
	gz := encoded(packed(t, "rem cmd\r\n"))
	for name, c := range map[string]struct {
		metadata, metadataEncoding string
		userdata, userdataEncoding string
		want                       string // user data
		problem                    string
	}{
		"gzip+base64":                       {encoded(packed(t, meta)), "gzip+base64", gz, "gzip+base64", "rem cmd\r\n", ""},
		"gz+b64":                            {encoded(packed(t, meta)), "gz+b64", gz, "gz+b64", "rem cmd\r\n", ""},
		"base64 of gzip":                    {encoded(meta), "base64", gz, "b64", "rem cmd\r\n", ""},
		"white space around the encoding":   {encoded(meta), " b64\n", gz, "\tgzip+base64 ", "rem cmd\r\n", ""},
		"base64 in lines":                   {encoded(meta), "b64", gz[:8] + "\r\n" + gz[8:], "gzip+base64", "rem cmd\r\n", ""},
		"plain text with the tool's breaks": {meta, "", "rem cmd\necho 1", "plaintext", "rem cmd\r\necho 1\r\n", ""},
		"JSON metadata":                     {`{"instance-id":"i-1","local-hostname":"w-1"}`, "", gz, "gzip+base64", "rem cmd\r\n", ""},
		"no user data":                      {meta, "", "", "", "", ""},
		"encoding in capitals":              {meta, "", gz, "GZIP+BASE64", "", `guestinfo.userdata.encoding "GZIP+BASE64"`},
		"encoding spelled otherwise":        {encoded(meta), "gz+base64", gz, "gzip+base64", "", `guestinfo.metadata.encoding "gz+base64"`},
		"wrong encoding without a value":    {meta, "", "", "nonsense", "", `guestinfo.userdata.encoding "nonsense"`},
		"damaged base64":                    {meta, "", gz[:len(gz)-3], "gzip+base64", "", "decoding guestinfo.userdata"},
		"damaged gzip":                      {meta, "", encoded("rem cmd"), "gzip+base64", "", "unpacking guestinfo.userdata"},
		"no metadata":                       {"", "", gz, "gzip+base64", "", "guestinfo.metadata is missing"},
		"gzip metadata declared as base64":  {encoded(packed(t, meta)), "base64", gz, "gzip+base64", "", "guestinfo.metadata is not YAML"},
		"metadata that is not YAML":         {"a: b: c", "", gz, "gzip+base64", "", "guestinfo.metadata is not YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readGuestInfo(map[string]string{
				"guestinfo.metadata": c.metadata, "guestinfo.metadata.encoding": c.metadataEncoding,
				"guestinfo.userdata": c.userdata, "guestinfo.userdata.encoding": c.userdataEncoding,
			})
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Fatalf("got error %v, want %q", err, c.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.instanceID != "i-1" || got.localHostname != "w-1" || string(got.userData) != c.want {
				t.Errorf("got %+v, user data %q", got, got.userData)
			}
		})
	}
}

func TestMetadataThatIsNoMapCountsAsEmpty(t *testing.T) {
	got, err := readGuestInfo(map[string]string{"guestinfo.metadata": "[a, b]", "guestinfo.userdata": "rem cmd"})
	if err != nil || got.instanceID != "" || got.localHostname != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestUserDataIsRecognisedAsCloudbaseInitDoes(t *testing.T) {
	for data, want := range map[string]userDataFormat{
		"rem cmd\r\necho":                        formatBatch,
		"rem   cmd\n":                            formatBatch,
		"REM CMD\r\n":                            formatUnknown,
		"\nrem cmd\r\n":                          formatUnknown,
		"\ufeffrem cmd\r\n":                      formatUnknown,
		"rem cmdline\r\n":                        formatUnknown,
		"#cloud-config\nusers: []":               formatCloudConfig,
		"#cloud-config-archive\n":                formatCloudConfig,
		"Content-Type: multipart/mixed\n\nbody":  formatMultipart,
		"rem cmd\nContent-Type: multipart\n\nx":  formatMultipart, // the whole first paragraph is searched
		"rem cmd\n\nContent-Type: multipart\nx":  formatBatch,
		"rem cmd\r\n\r\nContent-Type: multipart": formatMultipart, // CRLF text has no paragraphs
		"content-type: multipart/mixed\n\n":      formatUnknown,
		"## template: jinja\n#cloud-config\n":    formatTemplate,
		"#ps1\nexit":                             formatScript,
		"#ps1_sysnative\r\nexit":                 formatScript,
		"#PS1\nexit":                             formatUnknown,
		"#!/usr/bin/env python\n":                formatScript,
		"<powershell>exit</powershell>":          formatScript,
		"{\"ignition\":{}}":                      formatUnknown,
		"":                                       formatUnknown,
	} {
		if got, err := recognise([]byte(data)); err != nil || got != want {
			t.Errorf("%q: got %s, %v, want %s", data, got, err, want)
		}
	}
	if _, err := recognise([]byte{0xff, 0xfe, 'r', 0}); err == nil {
		t.Error("UTF-16 is accepted")
	}
}

func TestComputerNameIsCutAsCloudbaseInitDoes(t *testing.T) {
	for hostname, want := range map[string]string{
		"":                             "WIN-SETUP",
		"w-1":                          "w-1",
		"w-1.example.com":              "w-1",
		"this-is-longer-than-15":       "this-is-longer0",
		"exactly-15-chars":             "exactly-15-char",
		"ends-with-":                   "ends-with0",
		"Upper":                        "Upper",
		"under_score":                  "",
		"with space":                   "",
		"0123456789":                   "",
		"0123456789012345-never-seen":  "",
		"012345678901234a-only-digits": "",
	} {
		got, err := computerName(hostname, "WIN-SETUP")
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v, want %q", hostname, got, err, want)
		}
	}
}

func TestAddressesDependOnTheVMAndAreNeverSharedNorInvalid(t *testing.T) {
	var a, b addressPool
	network := netip.MustParsePrefix("10.64.0.0/10")
	seen := map[netip.Addr]bool{}
	for _, id := range []string{"vm-1", "vm-2", "vm-3"} {
		ip := a.lease(id)
		if seen[ip] || !network.Contains(ip) || ip == network.Addr() || ip == gateway() {
			t.Errorf("%s got %s", id, ip)
		}
		seen[ip] = true
		if again := b.lease(id); again != ip {
			t.Errorf("%s got %s and, in another pool, %s", id, ip, again)
		}
	}
	first := b.lease("vm-1") // the same place as the first lease of vm-1
	if seen[first] {
		t.Errorf("%s was given twice", first)
	}
	b.release([]netip.Addr{first})
	if again := b.lease("vm-1"); again != first {
		t.Errorf("released %s, got %s", first, again)
	}
}

func TestLinkLocalAddressesAreThoseOfTheMAC(t *testing.T) {
	if got := linkLocalAddress("00:50:56:ab:cd:ef").String(); got != "fe80::250:56ff:feab:cdef" {
		t.Error(got)
	}
}
