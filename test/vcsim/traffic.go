package vcsim

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// Calls are counted requests.
type Calls struct {
	// Total of all methods.
	Total int `json:"total"`
	// Methods counts by SOAP method, or by verb and path of a REST request.
	Methods map[string]int `json:"methods"`
}

// Table returns one line per method, most frequent first, with the number per VM.
func (c Calls) Table(vms int) string {
	names := slices.SortedFunc(maps.Keys(c.Methods), func(a, b string) int {
		if d := c.Methods[b] - c.Methods[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	line := func(name string, n int) {
		fmt.Fprintf(&b, "  %-34s %6d %8.2f/VM\n", name, n, float64(n)/float64(max(vms, 1)))
	}
	for _, name := range names {
		line(name, c.Methods[name])
	}
	line("TOTAL", c.Total)
	return b.String()
}

// Action is what happens to a request.
type Action struct {
	// Fault is answered instead of an execution.
	Fault types.BaseMethodFault
	// Drop closes the connection without executing the request.
	Drop bool
	// DropAnswer executes the request and then closes the connection without an answer.
	DropAnswer bool
	// Wait delays the execution until the channel is closed.
	Wait <-chan struct{}
}

// RequestHook decides what happens to a request for method; the zero Action lets it pass.
type RequestHook func(method string) Action

// Times returns a hook that applies action to the next n requests for method.
func Times(n int, method string, action Action) RequestHook {
	var left atomic.Int64
	left.Store(int64(n))
	return func(m string) Action {
		if m == method && left.Add(-1) >= 0 {
			return action
		}
		return Action{}
	}
}

// traffic is the HTTP handler in front of the simulator.
type traffic struct {
	server *Server
	next   http.Handler
	hook   atomic.Pointer[RequestHook]

	soapMethod, collector *regexp.Regexp

	mu     sync.Mutex
	counts map[string]int
}

func newTraffic(s *Server, next http.Handler) *traffic {
	return &traffic{
		server:     s,
		next:       next,
		soapMethod: regexp.MustCompile(`<(?:[\w-]+:)?Body[^>]*>\s*<(?:[\w-]+:)?(\w+)`),
		collector:  regexp.MustCompile(`<_this type="PropertyCollector">([^<]+)<`),
		counts:     map[string]int{},
	}
}

// ServeHTTP implements http.Handler.
func (t *traffic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	method := r.Method + " " + r.URL.Path
	if m := t.soapMethod.FindSubmatch(body); m != nil {
		method = string(m[1])
	}
	t.mu.Lock()
	t.counts[method]++
	t.mu.Unlock()

	var action Action
	if hook := t.hook.Load(); hook != nil {
		action = (*hook)(method)
	}
	if action.Wait != nil {
		select {
		case <-action.Wait:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case action.Drop:
		panic(http.ErrAbortHandler)
	case action.Fault != nil:
		writeFault(w, action.Fault)
		return
	case action.DropAnswer:
		t.next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	if method == "WaitForUpdatesEx" {
		// The simulator does not notice that a client gave up; its request would wait on.
		if m := t.collector.FindSubmatch(body); m != nil {
			served := make(chan struct{})
			defer close(served)
			go func() {
				select {
				case <-r.Context().Done():
					t.server.collectors.cancel(string(m[1]))
				case <-served:
				}
			}()
		}
	} else if d := t.server.delays.Load().RoundTrip; d > 0 {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	t.next.ServeHTTP(w, r)
}

func (t *traffic) calls() Calls {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Calls{Methods: maps.Clone(t.counts)}
	for _, n := range t.counts {
		c.Total += n
	}
	return c
}

func (t *traffic) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = map[string]int{}
}

// envelope is a SOAP answer with a fault, with the prefixes that SOAP clients expect.
type envelope struct {
	XMLName xml.Name  `xml:"soapenv:Envelope"`
	Env     string    `xml:"xmlns:soapenv,attr"`
	XSI     string    `xml:"xmlns:xsi,attr"`
	Fault   soapFault `xml:"soapenv:Body>soapenv:Fault"`
}

type soapFault struct {
	Code   string      `xml:"faultcode"`
	String string      `xml:"faultstring"`
	Detail faultDetail `xml:"detail>fault"`
}

// faultDetail is encoded as <TypeFault xsi:type="Type">.
type faultDetail struct{ fault types.BaseMethodFault }

// MarshalXML implements xml.Marshaler.
func (d faultDetail) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	kind := reflect.TypeOf(d.fault).Elem().Name()
	start.Name.Local = kind + "Fault"
	start.Attr = append(start.Attr,
		xml.Attr{Name: xml.Name{Local: "xmlns"}, Value: "urn:vim25"},
		xml.Attr{Name: xml.Name{Local: "xsi:type"}, Value: kind})
	return e.EncodeElement(d.fault, start)
}

func writeFault(w http.ResponseWriter, fault types.BaseMethodFault) {
	answer, err := xml.Marshal(envelope{
		Env: "http://schemas.xmlsoap.org/soap/envelope/",
		XSI: "http://www.w3.org/2001/XMLSchema-instance",
		Fault: soapFault{
			Code:   "ServerFaultCode",
			String: "injected: " + reflect.TypeOf(fault).Elem().Name(),
			Detail: faultDetail{fault},
		},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", `text/xml; charset="utf-8"`)
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(append([]byte(xml.Header), answer...))
}
