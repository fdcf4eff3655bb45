package ports_test

import (
	"net"
	"strconv"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/test/env/ports"
)

func TestPortsAreFreeAndNoTwoSetsShareOne(t *testing.T) {
	g := NewWithT(t)
	const sets, each = 8, 25
	taken := make(chan int, sets*each)
	errs := make(chan error, sets*each)
	var wg sync.WaitGroup
	for range sets {
		set := &ports.Set{}
		defer set.Release()
		wg.Go(func() {
			for range each {
				port, err := set.Take()
				if err == nil {
					err = listen(port)
				}
				errs <- err
				taken <- port
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		g.Expect(err).NotTo(HaveOccurred())
	}
	close(taken)
	seen := map[int]bool{}
	for port := range taken {
		seen[port] = true
	}
	g.Expect(seen).To(HaveLen(sets * each))
}

func listen(port int) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func TestAPortInUseIsNotTaken(t *testing.T) {
	g := NewWithT(t)
	set := &ports.Set{}
	port, err := set.Take()
	g.Expect(err).NotTo(HaveOccurred())
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = l.Close() }()
	set.Release()

	other := &ports.Set{}
	defer other.Release()
	for range 1000 {
		taken, err := other.Take()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(taken).NotTo(Equal(port))
	}
}
