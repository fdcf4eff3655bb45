package bootstrap

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
)

func TestTokenSecretIsWhatTheAPIServerReads(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.FixedZone("somewhere", 3600))
	s, err := TokenSecret("abcdef.0123456789abcdef", "whose it is", now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if s.Namespace != "kube-system" || s.Type != corev1.SecretTypeBootstrapToken {
		t.Errorf("got namespace %q and type %q", s.Namespace, s.Type)
	}
	if id, ok := bootstrapsecrets.ParseName(s.Name); !ok || id != "abcdef" {
		t.Errorf("name %q is not that of token abcdef", s.Name)
	}
	if left, expired := bootstrapsecrets.GetExpiration(s, now); expired || left != time.Hour {
		t.Errorf("expires in %s, want 1h", left)
	}
	groups, err := bootstrapsecrets.GetGroups(s)
	if err != nil || len(groups) != 2 || groups[1] != TokenGroup {
		t.Errorf("got groups %q and error %v", groups, err)
	}
	for key, want := range map[string]string{
		"token-id":                       "abcdef",
		"token-secret":                   "0123456789abcdef",
		"description":                    "whose it is",
		"usage-bootstrap-authentication": "true",
		"usage-bootstrap-signing":        "true",
	} {
		if got := string(s.Data[key]); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

func TestTokenSecretRefusesMalformedTokensWithoutRepeatingThem(t *testing.T) {
	for _, token := range []string{"", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef.x", "abcdef-0123456789abcdef"} {
		if _, err := TokenSecret(token, "", time.Time{}); err == nil {
			t.Errorf("token %q was accepted", token)
		} else if len(token) > 6 && strings.Contains(err.Error(), token) {
			t.Errorf("error %q repeats the token", err)
		}
	}
}
