//go:build linux

// Package native_test runs the tests of those packages as Windows programs that have some for Windows only.
package native_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/assets"
	"github.com/capw-dev/cluster-api-provider-windows/test/wine"
)

// packages are those with files named *_windows_test.go.
func packages() []string {
	return []string{
		"./agent/host/sim/hosttest",
		"./agent/host/winhost",
	}
}

func TestNative(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Tests that need Windows")
}

var _ = Describe("On a Wine machine, the tests of", func() {
	for _, pkg := range packages() {
		It(pkg+" pass", func(ctx context.Context) {
			vm, err := wine.NewVM(ctx, wine.Options{Log: GinkgoWriter})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { Expect(vm.Shutdown()).To(Succeed()) })
			var out bytes.Buffer
			code, err := vm.Test(ctx, io.MultiWriter(&out, GinkgoWriter), pkg, "-test.timeout=3m")
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(BeZero(), out.String)
		}, SpecTimeout(10*time.Minute))
	}
})

var _ = It("No package with tests for Windows is missing here", func(ctx context.Context) {
	root, err := assets.Root(ctx)
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, dir := range []string{"agent", "cmd"} {
		Expect(filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_windows_test.go") {
				return err
			}
			pkg, err := filepath.Rel(root, filepath.Dir(path))
			found = append(found, "./"+filepath.ToSlash(pkg))
			return err
		})).To(Succeed())
	}
	slices.Sort(found)
	Expect(packages()).To(ConsistOf(slices.Compact(found)))
})
