package codes

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

func TestEveryCodeIsUniqueAndTellsAPersonWhatToDo(t *testing.T) {
	form, name := regexp.MustCompile(`^CAPW-\d{4}$`), regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)
	codes, names := map[Code]bool{}, map[string]bool{}
	last := Code("")
	for _, i := range Table() {
		if !form.MatchString(string(i.Code)) || !name.MatchString(i.Name) {
			t.Errorf("%s %q is not in the form of the table", i.Code, i.Name)
		}
		if codes[i.Code] || names[i.Name] {
			t.Errorf("%s %s is there twice", i.Code, i.Name)
		}
		codes[i.Code], names[i.Name] = true, true
		if i.Code <= last {
			t.Errorf("%s comes after %s", i.Code, last)
		}
		last = i.Code
		if i.Class != Retryable && i.Class != Terminal {
			t.Errorf("%s has class %q", i.Code, i.Class)
		}
		for what, text := range map[string]string{"meaning": i.Meaning, "remedy": i.Remedy} {
			if len(text) < 20 || !strings.HasSuffix(text, ".") {
				t.Errorf("%s has no sentence as %s: %q", i.Code, what, text)
			}
		}
	}
	for n, phase := range []func() []Info{agentCodes, preflightCodes, hostCodes, networkCodes, artifactsCodes, configureCodes, runtimeCodes, joinCodes, servicesCodes, verifyCodes, doneCodes} {
		if len(phase()) == 0 {
			t.Errorf("phase %d has no codes", n)
		}
		for _, i := range phase() {
			if want := fmt.Sprintf("CAPW-%02d", n); !strings.HasPrefix(string(i.Code), want) {
				t.Errorf("%s is in the file of %s", i.Code, want)
			}
		}
	}
}

func TestAnErrorTellsItsCodeOnceAndKeepsItsCause(t *testing.T) {
	cause := fmt.Errorf("reading it: %w", fs.ErrPermission)
	err := fmt.Errorf("installing: %w", New(StateNotWritable, "writing the state: %w", cause))
	if want := "installing: CAPW-0006 StateNotWritable: writing the state: reading it: permission denied"; err.Error() != want {
		t.Errorf("%q instead of %q", err, want)
	}
	if !errors.Is(err, fs.ErrPermission) {
		t.Error("the cause is lost")
	}
	info, message := Of(err)
	if info.Code != StateNotWritable || message != "writing the state: reading it: permission denied" {
		t.Errorf("%s %q", info.Code, message)
	}
	if info, message := Of(cause); info.Code != Internal || message != cause.Error() {
		t.Errorf("an error without code is %s %q", info.Code, message)
	}
}
