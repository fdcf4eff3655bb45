package cloudbase

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

func TestMetadataNamesTheInstanceAndTheComputer(t *testing.T) {
	for _, id := range []string{"a", "6f2c0f6e-5d0b-4d5e-9a3c-2f1f3f0b9f11", "123", "1e3", "true.false_null", strings.Repeat("a", 128)} {
		data, err := Metadata(id, "win-1")
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := yaml.UnmarshalStrict(data, &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got["instance-id"] != id || got["local-hostname"] != "win-1" {
			t.Errorf("%s: %s", id, data)
		}
	}
}

func TestMetadataRefusesWhatCloudbaseInitOrWindowsWouldChange(t *testing.T) {
	for _, tc := range [][2]string{
		{"", "win-1"}, {`a\b`, "win-1"}, {"a/b", "win-1"}, {"a b", "win-1"}, {"ä", "win-1"}, {"-a", "win-1"}, {"a\n", "win-1"}, {strings.Repeat("a", 129), "win-1"},
		{"a", ""}, {"a", "sixteen-letters1"}, {"a", "win-"}, {"a", "WIN-1"}, {"a", "win.1"}, {"a", "123"}, {"a", "win_1"},
	} {
		if data, err := Metadata(tc[0], tc[1]); err == nil {
			t.Errorf("no error for instance ID %q and computer name %q: %s", tc[0], tc[1], data)
		}
	}
}

func TestGuestInfoDeliversBothPartsUnchanged(t *testing.T) {
	script := mustUserData(t, aDocument(), bootstrapv1.AgentSpec{})
	cloudConfig := []byte("#cloud-config\nruncmd: [\"echo a\"]\n")
	for name, tc := range map[string]struct{ given, want []byte }{
		"our script":            {script, script},
		"a cloud-config":        {cloudConfig, cloudConfig},
		"a gzip":                {compress(cloudConfig), cloudConfig},
		"binary data":           {[]byte{0, 1, 2, 255}, []byte{0, 1, 2, 255}},
		"base64 that means it":  {[]byte("dHJ1ZQ=="), []byte("dHJ1ZQ==")},
		"nothing":               {nil, nil},
		"something like a gzip": {[]byte{0x1f}, []byte{0x1f}},
	} {
		metadata := []byte(`{"instance-id":"a","local-hostname":"b"}`)
		info, err := GuestInfo(metadata, tc.given)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var keys []string
		for _, kv := range info {
			keys = append(keys, kv.Key)
		}
		if !slices.Equal(keys, []string{"guestinfo.metadata", "guestinfo.metadata.encoding", "guestinfo.userdata", "guestinfo.userdata.encoding"}) {
			t.Errorf("%s: keys %q", name, keys)
		}
		if info[1].Value != "gzip+base64" || info[3].Value != "gzip+base64" {
			t.Errorf("%s: encodings %q, %q", name, info[1].Value, info[3].Value)
		}
		if got := decode(t, info[0].Value); !bytes.Equal(got, metadata) {
			t.Errorf("%s: metadata %q", name, got)
		}
		if got := decode(t, info[2].Value); !bytes.Equal(got, tc.want) {
			t.Errorf("%s: user data %q", name, got)
		}
		again, err := GuestInfo(metadata, tc.given)
		if err != nil || !slices.Equal(info, again) {
			t.Errorf("%s: two calls differ", name)
		}
	}
}

func TestGuestInfoRefusesExactlyWhatExceedsTheLimit(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	noise := make([]byte, MaxGuestInfo)
	_, _ = random.Read(noise)
	// Noise grows by a constant in gzip, so that the largest that fits can be found.
	fits := 0
	for n := MaxGuestInfo*3/4 - 200; n < MaxGuestInfo; n++ {
		info, err := GuestInfo([]byte("{}"), noise[:n])
		if tooLarge := (*TooLargeError)(nil); errors.As(err, &tooLarge) {
			if tooLarge.Size <= MaxGuestInfo || tooLarge.Limit != MaxGuestInfo || !strings.Contains(tooLarge.What, "user data") {
				t.Errorf("%d bytes: %+v", n, tooLarge)
			}
			break
		} else if err != nil {
			t.Fatal(err)
		}
		fits = len(info[2].Value)
	}
	if fits <= MaxGuestInfo-4 || fits > MaxGuestInfo {
		t.Errorf("the largest value that was accepted has %d bytes", fits)
	}

	_, err := GuestInfo(noise, nil)
	if tooLarge := (*TooLargeError)(nil); !errors.As(err, &tooLarge) || !strings.Contains(tooLarge.What, "metadata") {
		t.Errorf("metadata: %v", err)
	}
	if _, err := GuestInfo([]byte("{}"), make([]byte, 1<<20)); err != nil {
		t.Errorf("1 MiB that compresses well: %v", err)
	}
}

// decode does what cloudbase-init does with gzip+base64.
func decode(t *testing.T, value string) []byte {
	t.Helper()
	compressed, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
