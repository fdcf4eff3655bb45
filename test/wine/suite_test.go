//go:build linux

package wine_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanMakerVariable) != "" {
		makeOrphans()
		return
	}
	os.Exit(m.Run())
}

func TestWine(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Wine machines")
}
