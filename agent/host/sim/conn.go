package sim

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection in memory. As with TCP, what is written is buffered: two ends that both write before they
// read do not block each other, as they would with net.Pipe.
type conn struct {
	local, remote net.Addr
	in, out       *stream
	read, write   deadline
	once          sync.Once
	closed        chan struct{}
}

// clientAddr is the end of a connection that has no address of its own.
type clientAddr struct{ network string }

// Network is that of the other end.
func (a clientAddr) Network() string { return a.network }

// String has no meaning.
func (clientAddr) String() string { return "client" }

// newConn returns both ends of a connection to an address.
func newConn(to net.Addr) (here, there net.Conn) {
	var from net.Addr = clientAddr{to.Network()}
	if tcp, ok := to.(*net.TCPAddr); ok {
		from = &net.TCPAddr{IP: tcp.IP, Port: 65535}
	}
	a, b := newStream(), newStream()
	return &conn{local: from, remote: to, in: a, out: b, closed: make(chan struct{})},
		&conn{local: to, remote: from, in: b, out: a, closed: make(chan struct{})}
}

// Read waits for something that the other end wrote.
func (c *conn) Read(b []byte) (int, error) {
	for {
		if err := c.over(&c.read); err != nil { // also with something to read
			return 0, c.opError("read", err)
		}
		n, changed, err := c.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		if err := c.wait(changed, &c.read); err != nil {
			return 0, c.opError("read", err)
		}
	}
}

// Write waits until all of b is in the buffer.
func (c *conn) Write(b []byte) (int, error) {
	written := 0
	for {
		if err := c.over(&c.write); err != nil { // also with room in the buffer
			return written, c.opError("write", err)
		}
		n, changed, err := c.out.put(b[written:])
		written += n
		if err != nil {
			return written, c.opError("write", err)
		}
		if written == len(b) {
			return written, nil
		}
		if err := c.wait(changed, &c.write); err != nil {
			return written, c.opError("write", err)
		}
	}
}

// over says why nothing goes any more.
func (c *conn) over(d *deadline) error {
	select {
	case <-c.closed:
		return net.ErrClosed
	case <-d.expired():
		return os.ErrDeadlineExceeded
	default:
		return nil
	}
}

func (c *conn) wait(changed <-chan struct{}, d *deadline) error {
	select {
	case <-changed:
		return nil
	case <-d.expired():
		return os.ErrDeadlineExceeded
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.remote.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// Close ends both directions. The other end still reads what was written.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.out.end(io.EOF)
		c.in.end(syscall.EPIPE)
		c.read.set(time.Time{})
		c.write.set(time.Time{})
	})
	return nil
}

// CloseWrite ends one direction.
func (c *conn) CloseWrite() error {
	c.out.end(io.EOF)
	return nil
}

// LocalAddr returns the address of this end.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both.
func (c *conn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

// SetReadDeadline ends reads.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

// SetWriteDeadline ends writes.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// streamBytes is how much can be written that is not read.
const streamBytes = 64 << 10

// stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex
	buf     []byte
	ended   error // io.EOF: by the writer; else by the reader
	changed chan struct{}
}

func newStream() *stream { return &stream{changed: make(chan struct{})} }

func (s *stream) take(b []byte) (int, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buf) == 0 {
		if s.ended == io.EOF { //nolint:errorlint // set as it is
			return 0, s.changed, io.EOF
		}
		return 0, s.changed, nil
	}
	n := copy(b, s.buf)
	s.buf = s.buf[n:]
	s.broadcast()
	return n, s.changed, nil
}

func (s *stream) put(b []byte) (int, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return 0, s.changed, syscall.EPIPE
	}
	n := min(len(b), streamBytes-len(s.buf))
	if n > 0 {
		s.buf = append(s.buf, b[:n]...)
		s.broadcast()
	}
	return n, s.changed, nil
}

func (s *stream) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = why
	}
	s.broadcast()
}

func (s *stream) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// deadline is a channel that is closed at a time.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	over   chan struct{}
	passed bool // over is closed
}

func (d *deadline) expired() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = nil
	if d.over == nil || d.passed {
		d.over, d.passed = make(chan struct{}), false
	}
	switch wait := time.Until(t); {
	case t.IsZero():
	case wait <= 0:
		d.pass()
	default:
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer {
				d.pass()
			}
		})
		d.timer = timer
	}
}

func (d *deadline) pass() {
	close(d.over)
	d.passed = true
}
