//go:build windows

package winhost

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// comparePause is between two looks at the network where Windows does not tell about changes, or not about all.
const comparePause = 10 * time.Second

// netNotifier hands on what iphlpapi tells about changes.
type netNotifier struct {
	// callback is made once: Go never gives back the memory of one.
	callback func() uintptr

	mu       sync.Mutex
	watchers map[uintptr]*netWatcher
}

// netWatcher is who wants to know.
type netWatcher struct {
	changed chan struct{}
}

func newNetNotifier() *netNotifier {
	n := &netNotifier{watchers: map[uintptr]*netWatcher{}}
	n.callback = sync.OnceValue(func() uintptr {
		return windows.NewCallback(func(caller, _, _ uintptr) uintptr {
			n.mu.Lock()
			defer n.mu.Unlock()
			if w := n.watchers[caller]; w != nil {
				w.tell()
			}
			return 0
		})
	})
	return n
}

// tell leaves one word, however often it is called before that is read.
func (w *netWatcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// watch returns a watcher, and what ends it.
func (n *netNotifier) watch() (*netWatcher, func() error) {
	w := &netWatcher{changed: make(chan struct{}, 1)}
	id := uintptr(unsafe.Pointer(w)) // only a name: the map keeps w, and Go does not move it
	n.mu.Lock()
	n.watchers[id] = w
	n.mu.Unlock()
	handles := []windows.Handle{}
	for _, register := range []func(uint16, uintptr, unsafe.Pointer, bool, *windows.Handle) error{
		windows.NotifyUnicastIpAddressChange, windows.NotifyRouteChange2, windows.NotifyIpInterfaceChange,
	} {
		var handle windows.Handle
		// What cannot be told is found by comparison.
		if err := register(windows.AF_UNSPEC, n.callback(), unsafe.Pointer(w), false, &handle); err == nil && handle != 0 {
			handles = append(handles, handle)
		}
	}
	return w, func() error {
		var errs []error
		for _, h := range handles {
			errs = append(errs, windows.CancelMibChangeNotify2(h)) // waits for callbacks that run
		}
		n.mu.Lock()
		delete(n.watchers, id)
		n.mu.Unlock()
		return errors.Join(errs...)
	}
}

// Changes tells what Windows tells, and compares from time to time.
func (n *network) Changes(ctx context.Context) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, stop := n.notify.watch()
	last, _ := fingerprint()
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		defer func() { _ = stop() }()
		compare := time.NewTicker(comparePause)
		defer compare.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.changed:
			case <-compare.C:
				now, err := fingerprint()
				if err != nil || now == last {
					continue
				}
				last = now
			}
			select {
			case out <- struct{}{}:
			default: // there is word already
			}
		}
	}()
	return out, nil
}

// fingerprint changes with the addresses, routes and links of the machine.
func fingerprint() (uint64, error) {
	adapters, err := readAdapters()
	if err != nil {
		return 0, err
	}
	rows, err := readRoutes()
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	write := func(parts ...any) {
		for _, p := range parts {
			_ = binary.Write(h, binary.LittleEndian, p) // a hash takes everything
		}
	}
	for _, a := range adapters {
		write(indexOf(a), a.OperStatus)
		for _, addr := range addressesOf(a) {
			write([]byte(addr.String() + string(addr.stage)))
		}
	}
	for i := range rows {
		r := routeOf(&rows[i])
		write(rows[i].InterfaceIndex, r.metric, []byte(r.to.String()+r.via.String()))
	}
	return h.Sum64(), nil
}
