// Package ports chooses TCP ports for programs that must be told one.
//
// Asking the kernel for a free port and closing it again is a race: it may hand the same port out before the program
// listens. A Set therefore takes ports below the range that the kernel uses for outgoing connections, and holds a lock per
// port that every other Set on this machine sees.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The range is below Linux' default of 32768 for ephemeral ports.
const (
	first = 20000
	count = 10000
)

// Set holds ports until Release. The locks vanish with the process, however it ends.
type Set struct {
	mu    sync.Mutex
	locks []*os.File
}

// Take returns a port on 127.0.0.1 that is free now and is left alone by every other Set until Release.
func (s *Set) Take() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(os.TempDir(), "capw-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("taking a port: %w", err)
	}
	start := rand.IntN(count)
	for i := range count {
		port := first + (start+i)%count
		lock, err := tryLock(filepath.Join(dir, strconv.Itoa(port)))
		if err != nil {
			return 0, fmt.Errorf("taking port %d: %w", port, err)
		}
		if lock == nil {
			continue
		}
		if !free(port) {
			_ = lock.Close()
			continue
		}
		s.locks = append(s.locks, lock)
		return port, nil
	}
	return 0, fmt.Errorf("taking a port: none free from %d to %d", first, first+count-1)
}

// Release gives all ports back.
func (s *Set) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.locks {
		_ = l.Close() // closing releases the lock
	}
	s.locks = nil
}

// tryLock returns nil without error if the lock is taken.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

func free(port int) bool {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	return l.Close() == nil
}
