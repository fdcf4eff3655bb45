package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestVSphere(t *testing.T) {
	ctrl.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(300 * time.Millisecond)
	RegisterFailHandler(Fail)
	RunSpecs(t, "vSphere platform")
}
