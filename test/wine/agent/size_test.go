//go:build linux

package agent_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Built as a release is: -trimpath, without symbols.
var _ = It("The agent for Windows has at most 20 MiB", func() {
	const limit = 20 << 20
	info, err := os.Stat(programs.Agent)
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("size of capw-node.exe", info.Size())
	Expect(info.Size()).To(BeNumerically("<=", limit))
})
