package sim

import "net"

// Pipe returns both ends of a connection in memory to an address, buffered as TCP is, for what stands outside of the machine
// (Options.Dial). With net.Pipe, two ends that write at once, as TLS does when it refuses a certificate, would block each other.
func Pipe(to net.Addr) (here, there net.Conn) { return newConn(to) }
