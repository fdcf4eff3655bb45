//go:build windows

package winhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

const (
	// managementTime is how long a new external network may take to give its address to the adapter of the host. The
	// connections of the machine are interrupted meanwhile.
	managementTime  = 30 * time.Second
	managementPause = 500 * time.Millisecond
)

// hcnQuery asks for all objects, with what they are by default.
const hcnQuery = `{"SchemaVersion":{"Major":2,"Minor":0},"Flags":0}`

// hns calls computenetwork.dll itself. Package hcn of hcsshim does the same, but brings gRPC, OpenTelemetry's predecessor
// and containerd's statistics with it, 2.6 MB of program for nine functions, and takes no settings that it does not know.
type hns struct {
	networks, endpoints hcnKind
}

// hcnKind are the functions for one kind of object, which differ in their names only.
type hcnKind struct {
	// name in messages, and as in the functions' names.
	name                                  string
	enumerate, open, query, close, delete *windows.LazyProc
	create                                *windows.LazyProc
}

func newHNS() *hns {
	kind := func(name, plural string) hcnKind {
		function := func(verb, object string) *windows.LazyProc { return proc("computenetwork.dll", "Hcn"+verb+object) }
		return hcnKind{
			name:      strings.ToLower(name),
			enumerate: function("Enumerate", plural), open: function("Open", name),
			query: function("Query", name+"Properties"), close: function("Close", name),
			delete: function("Delete", name), create: function("Create", name),
		}
	}
	return &hns{networks: kind("Network", "Networks"), endpoints: kind("Endpoint", "Endpoints")}
}

func (h *hns) Networks(ctx context.Context) ([]host.HNSNetwork, error) {
	networks, err := h.listNetworks(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]host.HNSNetwork, 0, len(networks))
	for _, n := range networks {
		out = append(out, h.complete(n))
	}
	return out, nil
}

func (h *hns) listNetworks(ctx context.Context) ([]hcnNetwork, error) {
	documents, err := h.networks.list(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]hcnNetwork, 0, len(documents))
	for _, d := range documents {
		n, err := readHCNNetwork(d)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// complete adds the management IP, where there is one already.
func (h *hns) complete(n hcnNetwork) host.HNSNetwork {
	out := n.network()
	if out.ManagementIP == "" {
		if ip, err := askManagementIP(n.ID); err == nil {
			out.ManagementIP = ip
		}
	}
	return out
}

// CreateNetwork returns the network that is there already if it has the same name, type and subnets. It waits until an
// external network has its management IP.
func (h *hns) CreateNetwork(ctx context.Context, settings []byte) (host.HNSNetwork, error) {
	want, err := readHCNNetwork(string(settings))
	if err != nil {
		return host.HNSNetwork{}, fmt.Errorf("%w: %w", host.ErrInvalid, err)
	}
	networks, err := h.listNetworks(ctx)
	if err != nil {
		return host.HNSNetwork{}, err
	}
	for _, n := range networks {
		if n.same(want) {
			return h.awaitManagement(ctx, n)
		}
	}
	document, err := h.networks.make(ctx, 0, settings)
	if err != nil {
		return host.HNSNetwork{}, fmt.Errorf("create HNS network %s: %w", want.Name, err)
	}
	made, err := readHCNNetwork(document)
	if err != nil {
		return host.HNSNetwork{}, err
	}
	return h.awaitManagement(ctx, made)
}

func (h *hns) awaitManagement(ctx context.Context, n hcnNetwork) (host.HNSNetwork, error) {
	for waited := time.Duration(0); ; waited += managementPause {
		out := h.complete(n)
		if out.ManagementIP != "" || !n.external() || waited >= managementTime {
			return out, nil
		}
		if err := sleep(ctx, managementPause); err != nil {
			return host.HNSNetwork{}, err
		}
	}
}

func (h *hns) DeleteNetwork(ctx context.Context, id string) error {
	endpoints, err := h.listEndpoints(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if err := h.endpoints.remove(ctx, e.ID); err != nil {
			return err
		}
	}
	return h.networks.remove(ctx, id)
}

func (h *hns) Endpoints(ctx context.Context, network string) ([]host.HNSEndpoint, error) {
	endpoints, err := h.listEndpoints(ctx, network)
	if err != nil {
		return nil, err
	}
	out := make([]host.HNSEndpoint, 0, len(endpoints))
	for _, e := range endpoints {
		out = append(out, e.endpoint())
	}
	return out, nil
}

func (h *hns) listEndpoints(ctx context.Context, network string) ([]hcnEndpoint, error) {
	documents, err := h.endpoints.list(ctx)
	if err != nil {
		return nil, err
	}
	out := []hcnEndpoint{}
	for _, d := range documents {
		e, err := readHCNEndpoint(d)
		if err != nil {
			return nil, err
		}
		if strings.EqualFold(e.HostComputeNetwork, network) {
			out = append(out, e)
		}
	}
	return out, nil
}

// CreateEndpoint returns the endpoint of the network that is there already if it has the same name, and the same addresses
// where the settings say some.
func (h *hns) CreateEndpoint(ctx context.Context, network string, settings []byte) (host.HNSEndpoint, error) {
	want, err := readHCNEndpoint(string(settings))
	if err != nil {
		return host.HNSEndpoint{}, fmt.Errorf("%w: %w", host.ErrInvalid, err)
	}
	endpoints, err := h.listEndpoints(ctx, network)
	if err != nil {
		return host.HNSEndpoint{}, err
	}
	for _, e := range endpoints {
		if e.same(want) {
			return e.endpoint(), nil
		}
	}
	handle, err := h.networks.openObject(network)
	if err != nil {
		return host.HNSEndpoint{}, err
	}
	defer h.networks.closeObject(handle)
	document, err := h.endpoints.make(ctx, handle, settings)
	if err != nil {
		return host.HNSEndpoint{}, fmt.Errorf("create HNS endpoint %s: %w", want.Name, err)
	}
	made, err := readHCNEndpoint(document)
	return made.endpoint(), err
}

func (h *hns) DeleteEndpoint(ctx context.Context, id string) error {
	return h.endpoints.remove(ctx, id)
}

// list returns the documents of all objects. One that goes meanwhile is left out.
func (k hcnKind) list(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var answer, result *uint16
	err := hcnCall(k.enumerate, uintptr(unsafe.Pointer(utf16Pointer(hcnQuery))), uintptr(unsafe.Pointer(&answer)),
		uintptr(unsafe.Pointer(&result)))
	if err := explain(err, result); err != nil {
		return nil, fmt.Errorf("list HNS %ss: %w", k.name, err)
	}
	ids := []string{}
	if text := takeCOMString(answer); text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("list HNS %ss: %w", k.name, err)
		}
	}
	out := []string{}
	for _, id := range ids {
		handle, err := k.openObject(id)
		if errors.Is(err, host.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		document, err := k.describe(handle)
		k.closeObject(handle)
		if err != nil {
			return nil, err
		}
		out = append(out, document)
	}
	return out, nil
}

func (k hcnKind) openObject(id string) (uintptr, error) {
	guid, err := parseGUID(id)
	if err != nil {
		return 0, err
	}
	var handle uintptr
	var result *uint16
	err = hcnCall(k.open, uintptr(unsafe.Pointer(&guid)), uintptr(unsafe.Pointer(&handle)), uintptr(unsafe.Pointer(&result)))
	if err := explain(err, result); err != nil {
		return 0, fmt.Errorf("open HNS %s %s: %w", k.name, id, err)
	}
	return handle, nil
}

func (k hcnKind) closeObject(handle uintptr) { _, _, _ = k.close.Call(handle) }

func (k hcnKind) describe(handle uintptr) (string, error) {
	var answer, result *uint16
	err := hcnCall(k.query, handle, uintptr(unsafe.Pointer(utf16Pointer(hcnQuery))), uintptr(unsafe.Pointer(&answer)),
		uintptr(unsafe.Pointer(&result)))
	if err := explain(err, result); err != nil {
		return "", fmt.Errorf("read HNS %s: %w", k.name, err)
	}
	return takeCOMString(answer), nil
}

// make creates an object, in a network if its handle is given, under a new ID.
func (k hcnKind) make(ctx context.Context, network uintptr, settings []byte) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	text, err := windows.UTF16PtrFromString(string(settings))
	if err != nil {
		return "", fmt.Errorf("%w: %w", host.ErrInvalid, err)
	}
	var guid windows.GUID
	var handle uintptr
	var result *uint16
	if network == 0 {
		err = hcnCall(k.create, uintptr(unsafe.Pointer(&guid)), uintptr(unsafe.Pointer(text)), uintptr(unsafe.Pointer(&handle)),
			uintptr(unsafe.Pointer(&result)))
	} else {
		err = hcnCall(k.create, network, uintptr(unsafe.Pointer(&guid)), uintptr(unsafe.Pointer(text)),
			uintptr(unsafe.Pointer(&handle)), uintptr(unsafe.Pointer(&result)))
	}
	if err := explain(err, result); err != nil {
		return "", err
	}
	defer k.closeObject(handle)
	return k.describe(handle)
}

func (k hcnKind) remove(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	guid, err := parseGUID(id)
	if err != nil {
		return err
	}
	var result *uint16
	err = hcnCall(k.delete, uintptr(unsafe.Pointer(&guid)), uintptr(unsafe.Pointer(&result)))
	if err := explain(err, result); err != nil && !errors.Is(err, host.ErrNotFound) {
		return fmt.Errorf("delete HNS %s %s: %w", k.name, id, err)
	}
	return nil
}

// askManagementIP asks by version 1 of the API.
func askManagementIP(id string) (string, error) {
	var answer *uint16
	err := hcnCall(proc("vmcompute.dll", "HNSCall"), uintptr(unsafe.Pointer(utf16Pointer("GET"))),
		uintptr(unsafe.Pointer(utf16Pointer("/networks/"+id))), uintptr(unsafe.Pointer(utf16Pointer(""))),
		uintptr(unsafe.Pointer(&answer)))
	if err != nil {
		return "", err
	}
	return managementIP(takeCOMString(answer))
}

// hcnCall gives the codes of the Host Networking Service their meaning. As callHRESULT.
//
//go:uintptrescapes
func hcnCall(p *windows.LazyProc, args ...uintptr) error {
	return hcnError(callHRESULT(p, args...))
}

// explain adds the document about a failure, and frees it.
func explain(err error, result *uint16) error {
	if message := takeCOMString(result); err != nil && message != "" {
		return fmt.Errorf("%w: %s", err, hcnMessage(message))
	}
	return err
}

func hcnError(err error) error {
	var meaning error
	var win32 syscall.Errno
	var code hresultError
	switch {
	case errors.As(err, &win32):
		switch win32 {
		case windows.ERROR_NOT_FOUND:
			meaning = host.ErrNotFound
		case windows.ERROR_SERVICE_DOES_NOT_EXIST, windows.RPC_S_UNKNOWN_IF, windows.EPT_S_NOT_REGISTERED:
			meaning = host.ErrNotSupported // the service comes with the feature Containers
		case windows.RPC_S_SERVER_UNAVAILABLE:
			meaning = host.ErrBusy // it is there, but has not come up
		case windows.ERROR_INVALID_PARAMETER:
			meaning = host.ErrInvalid
		}
	case errors.As(err, &code):
		switch windows.Handle(code) {
		case windows.HCN_E_NETWORK_NOT_FOUND, windows.HCN_E_ENDPOINT_NOT_FOUND:
			meaning = host.ErrNotFound
		case windows.HCN_E_NETWORK_ALREADY_EXISTS, windows.HCN_E_INVALID_NETWORK, windows.HCN_E_INVALID_NETWORK_TYPE,
			windows.HCN_E_INVALID_ENDPOINT, windows.HCN_E_INVALID_POLICY, windows.HCN_E_INVALID_POLICY_TYPE,
			windows.HCN_E_INVALID_JSON, windows.HCN_E_INVALID_JSON_REFERENCE, windows.HCN_E_INVALID_IP,
			windows.HCN_E_ADDR_INVALID_OR_RESERVED:
			meaning = host.ErrInvalid
		case windows.E_NOTIMPL, windows.REGDB_E_CLASSNOTREG:
			meaning = host.ErrNotSupported
		}
	}
	if meaning == nil {
		return err
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// takeCOMString returns a text that the callee allocated, and frees it.
func takeCOMString(p *uint16) string {
	if p == nil {
		return ""
	}
	defer windows.CoTaskMemFree(unsafe.Pointer(p))
	return windows.UTF16PtrToString(p)
}

// parseGUID reads one with or without braces.
func parseGUID(id string) (windows.GUID, error) {
	guid, err := windows.GUIDFromString("{" + strings.Trim(id, "{}") + "}")
	if err != nil {
		return guid, fmt.Errorf("ID %q: %w: %w", id, host.ErrInvalid, err)
	}
	return guid, nil
}
