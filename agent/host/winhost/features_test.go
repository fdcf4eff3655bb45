package winhost

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func TestFeatureStatesAreThoseOfTheNextQuestion(t *testing.T) {
	for state, want := range map[packageState]host.FeatureState{
		0: host.FeatureDisabled, // not present
		1: host.FeatureDisabled, // uninstall pending
		2: host.FeatureDisabled, // staged
		3: host.FeatureDisabled, // removed
		4: host.FeatureEnabled,
		5: host.FeaturePending,
		6: host.FeatureDisabled, // superseded
		7: host.FeatureDisabled, // partially installed
	} {
		NewWithT(t).Expect(state.state()).To(Equal(want), "%d", state)
	}
}

func TestAFeatureIsEnabledWithWhatItNeedsAndWithoutAReboot(t *testing.T) {
	NewWithT(t).Expect(enableFeatureArgs("Containers")).To(Equal([]string{
		"/Online", "/Enable-Feature", "/FeatureName:Containers", "/All", "/NoRestart", "/LimitAccess", "/Quiet"}))
}

func TestTheExitCodeOfDismSaysHowItWent(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int
		reboot bool
		err    error
	}{
		"done":               {code: 0},
		"done after reboot":  {code: 3010, reboot: true},
		"unknown":            {code: 0x800f080c, err: host.ErrNotFound},
		"unknown, negative":  {code: -2146498548, err: host.ErrNotFound},
		"files missing":      {code: 0x800f081f, err: host.ErrNotSupported},
		"download forbidden": {code: 0x800f0907, err: host.ErrNotSupported},
		"no administrator":   {code: 740, err: host.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reboot, err := enableFeatureResult("Containers", host.Result{ExitCode: tc.code})
			g.Expect(reboot).To(Equal(tc.reboot))
			if tc.err == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(tc.err))
			}
		})
	}
	_, err := enableFeatureResult("Containers", host.Result{ExitCode: 5, Stdout: []byte("Zugriff\r\nverweigert")})
	NewWithT(t).Expect(err).To(MatchError("feature Containers: dism.exe: exit code 0x00000005: Zugriff verweigert"))
}
