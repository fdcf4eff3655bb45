package cri

import (
	"net"
	"sync"
)

// eager is a connection whose writes do not wait for the other side to read. A named pipe may have no buffer at all: gRPC's
// server begins with its settings and so does net/http's client, before it reads anything, and the two would wait for each
// other for ever.
type eager struct {
	net.Conn
	queue  chan []byte
	closed chan struct{}
	once   sync.Once
}

// queued is more than the few frames of a call.
const queued = 64

func newEager(c net.Conn) *eager {
	e := &eager{Conn: c, queue: make(chan []byte, queued), closed: make(chan struct{})}
	go e.run()
	return e
}

func (e *eager) run() {
	for {
		select {
		case <-e.closed:
			return
		case p := <-e.queue:
			if _, err := e.Conn.Write(p); err != nil {
				_ = e.Close() // the reader tells it
				return
			}
		}
	}
}

// Write implements net.Conn.
func (e *eager) Write(p []byte) (int, error) {
	select {
	case <-e.closed:
		return 0, net.ErrClosed
	case e.queue <- append([]byte(nil), p...):
		return len(p), nil
	}
}

// Close implements net.Conn.
func (e *eager) Close() error {
	e.once.Do(func() { close(e.closed) })
	return e.Conn.Close()
}
