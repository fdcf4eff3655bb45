// Package cri asks a container runtime for its version and state over the Container Runtime Interface (CRI).
//
// The CRI is gRPC, and gRPC is HTTP/2 with length-prefixed messages and a status in the trailers:
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. For two calls without streams, net/http and the wire
// format of protocol buffers are enough; a gRPC library would be a third of the agent's size.
package cri

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Dial opens a connection to the runtime.
type Dial func(ctx context.Context) (net.Conn, error)

// maxMessage bounds an answer, in bytes. Both answers are some hundred bytes long.
const maxMessage = 1 << 20

// Version returns the runtime's name, such as containerd, and its version, such as v2.2.0. A runtime that answers with an
// error gives a *StatusError.
func Version(ctx context.Context, dial Dial) (name, version string, err error) {
	answer, err := call(ctx, dial, "Version")
	if err != nil {
		return "", "", err
	}
	// message VersionResponse { string version = 1; string runtime_name = 2; string runtime_version = 3; ... }
	err = fields(answer, func(number protowire.Number, value []byte, _ uint64) error {
		switch number {
		case 2:
			name = string(value)
		case 3:
			version = string(value)
		}
		return nil
	})
	if err != nil {
		return "", "", fmt.Errorf("reading the runtime's version: %w", err)
	}
	if name == "" || version == "" {
		return "", "", errors.New("the runtime answers without its name or version")
	}
	return name, version, nil
}

// Condition is a statement of the runtime about itself. Those that every runtime makes are RuntimeReady and NetworkReady.
type Condition struct {
	Type    string
	Status  bool
	Reason  string
	Message string
}

// Conditions returns what the runtime says about itself. NetworkReady is false until a CNI plug-in is configured.
func Conditions(ctx context.Context, dial Dial) ([]Condition, error) {
	answer, err := call(ctx, dial, "Status")
	if err != nil {
		return nil, err
	}
	// message StatusResponse { RuntimeStatus status = 1; ... }  message RuntimeStatus { repeated RuntimeCondition conditions = 1; }
	var conditions []Condition
	err = fields(answer, func(number protowire.Number, status []byte, _ uint64) error {
		if number != 1 {
			return nil
		}
		return fields(status, func(number protowire.Number, raw []byte, _ uint64) error {
			if number != 1 {
				return nil
			}
			c, err := condition(raw)
			conditions = append(conditions, c)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("reading the runtime's status: %w", err)
	}
	return conditions, nil
}

// condition reads message RuntimeCondition { string type = 1; bool status = 2; string reason = 3; string message = 4; }.
func condition(raw []byte) (c Condition, err error) {
	err = fields(raw, func(number protowire.Number, value []byte, varint uint64) error {
		switch number {
		case 1:
			c.Type = string(value)
		case 2:
			c.Status = protowire.DecodeBool(varint)
		case 3:
			c.Reason = string(value)
		case 4:
			c.Message = string(value)
		}
		return nil
	})
	return c, err
}

// fields calls f for each field of a message: value for those with a length, varint for numbers.
func fields(message []byte, f func(number protowire.Number, value []byte, varint uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := f(number, value, varint); err != nil {
			return err
		}
	}
	return nil
}

// StatusError is an error that the runtime answered with.
type StatusError struct {
	// Code of gRPC: 12 is Unimplemented, 14 Unavailable.
	Code    int
	Message string
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("gRPC status %d: %s", e.Code, e.Message) }

// call sends a request without content to a method of the runtime service and returns the answer.
func call(ctx context.Context, dial Dial, method string) ([]byte, error) {
	transport := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return newEager(conn), nil
		},
		DisableCompression: true,
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()

	emptyMessage := make([]byte, 5) // not compressed, length 0
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime.v1.RuntimeService/"+method, bytes.NewReader(emptyMessage))
	if err != nil {
		return nil, fmt.Errorf("asking the runtime for its %s: %w", method, err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("asking the runtime for its %s: %w", method, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the runtime for its %s: no gRPC server: HTTP status %s", method, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMessage+1))
	if err != nil {
		return nil, fmt.Errorf("reading the runtime's %s: %w", method, err)
	}
	if err := status(response); err != nil {
		return nil, fmt.Errorf("asking the runtime for its %s: %w", method, err)
	}
	if len(body) < 5 || len(body) > maxMessage || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:5])) != len(body)-5 {
		return nil, fmt.Errorf("reading the runtime's %s: the answer of %d bytes is not one gRPC message", method, len(body))
	}
	return body[5:], nil
}

// status returns the error in the trailers of an answer, or in its header when it has nothing else.
func status(response *http.Response) error {
	at := response.Trailer
	if at.Get("Grpc-Status") == "" {
		at = response.Header
	}
	code, err := strconv.Atoi(at.Get("Grpc-Status"))
	if err != nil {
		return errors.New("the answer ended without a gRPC status")
	}
	if code == 0 {
		return nil
	}
	message := at.Get("Grpc-Message")
	if decoded, err := url.PathUnescape(message); err == nil {
		message = decoded
	}
	return &StatusError{Code: code, Message: message}
}
