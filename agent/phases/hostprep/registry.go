package hostprep

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/engine"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

// setting is a registry value that shall be.
type setting struct {
	key, name string
	value     host.Value
}

// apply sets the values that differ. before, if not nil, is called before the first change.
func apply(ctx context.Context, r *engine.Run, settings []setting, before func(ctx context.Context) error) error {
	for _, s := range settings {
		have, err := r.Host.Registry.Get(ctx, s.key, s.name)
		trace := engine.Trace{Kind: engine.TraceRegistry, Name: engine.RegistryName(s.key, s.name)}
		switch {
		case err == nil && reflect.DeepEqual(normal(have), normal(s.value)):
			continue
		case err == nil:
			raw, err := json.Marshal(have)
			if err != nil {
				return fmt.Errorf("remembering %s %s: %w", s.key, s.name, err)
			}
			trace.Before = string(raw)
		case !errors.Is(err, host.ErrNotFound):
			return codes.New(codes.RegistryNotSet, "reading %s, value %q: %w", s.key, s.name, err)
		}
		if before != nil {
			if err := before(ctx); err != nil {
				return err
			}
		}
		if err := r.Trace(ctx, trace); err != nil {
			return fmt.Errorf("remembering %s %s: %w", s.key, s.name, err)
		}
		if err := r.Host.Registry.Set(ctx, s.key, s.name, s.value); err != nil {
			return refused(err, codes.RegistryRefused, codes.RegistryNotSet, "setting %s, value %q", s.key, s.name)
		}
	}
	return nil
}

// applyAtBoot is apply for values that Windows reads when it boots.
func applyAtBoot(ctx context.Context, r *engine.Run, what string, settings []setting) error {
	n, err := newNeed(ctx, r, what)
	if err != nil {
		return err
	}
	if err := apply(ctx, r, settings, n.remember); err != nil {
		return err
	}
	n.request()
	return nil
}

// normal returns a value in which nothing and an empty list are the same.
func normal(v host.Value) host.Value {
	if len(v.Texts) == 0 {
		v.Texts = nil
	}
	if len(v.Bytes) == 0 {
		v.Bytes = nil
	}
	return v
}

func setRegistryValues(ctx context.Context, r *engine.Run) error {
	var settings []setting
	for i, v := range r.Doc.OS.Registry {
		value, err := parseValue(v)
		if err != nil {
			return codes.New(codes.RegistryRefused, "os.registry[%d], %s: %w", i, v.Key, err)
		}
		settings = append(settings, setting{v.Key, v.Name, value})
	}
	return apply(ctx, r, settings, nil)
}

// parseValue reads a value of the document.
func parseValue(v nodev1.RegistryValue) (host.Value, error) {
	out := host.Value{Type: host.ValueType(v.Type)}
	var err error
	switch out.Type {
	case host.String, host.ExpandString:
		out.Text = v.Value
	case host.MultiString:
		out.Texts = v.Values
	case host.DWord:
		out.Number, err = strconv.ParseUint(v.Value, 10, 32)
	case host.QWord:
		out.Number, err = strconv.ParseUint(v.Value, 10, 64)
	case host.Binary:
		out.Bytes, err = hex.DecodeString(v.Value)
	default:
		err = fmt.Errorf("there is no type %q", v.Type)
	}
	return out, err
}

// setUpHNS turns on what containers need of Windows' network and is off by default in some builds.
func setUpHNS(ctx context.Context, r *engine.Run) error {
	return applyAtBoot(ctx, r, "settings of the container network", hnsSettings(r.Facts.WindowsBuild))
}

// hnsSettings are those of kubernetes-sigs/image-builder (ansible/windows/roles/systemprep and runtimes): an image that comes
// from there has them all.
func hnsSettings(build string) []setting {
	const (
		hns       = `HKLM\SYSTEM\CurrentControlSet\Services\hns\State`
		overrides = `HKLM\SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides`
	)
	// Containers resolve names of SMB shares and domains in their own network compartment, see
	// https://github.com/kubernetes-sigs/windows-gmsa/issues/30#issuecomment-802240945.
	out := []setting{{hns, "EnableCompartmentNamespace", host.DWordValue(1)}}
	switch build {
	case "10.0.17763": // fixes of November 2022 that are off by default
		out = append(out,
			setting{hns, "HNSControlFlag", host.DWordValue(0x50)},
			setting{`HKLM\SYSTEM\CurrentControlSet\Services\wcifs`, "WcifsSOPCountDisabled", host.DWordValue(0)})
	case "10.0.20348": // off: less lock contention in VFP, as it came in April 2025, breaks pod networks
		out = append(out, setting{overrides, "1114842764", host.DWordValue(0)})
	case "10.0.26100": // on: less lock contention in VFP
		out = append(out, setting{overrides, "520997518", host.DWordValue(1)})
	}
	return out
}

// setPageFile sets the page file of the system drive. A list that is not the automatic one turns Windows' own management off;
// page files of other drives stay.
func setPageFile(ctx context.Context, r *engine.Run) error {
	const key = `HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management`
	have, err := r.Host.Registry.Get(ctx, key, "PagingFiles")
	if err != nil && !errors.Is(err, host.ErrNotFound) {
		return codes.New(codes.RegistryNotSet, "reading the page files: %w", err)
	}
	size := r.Doc.OS.PageFile
	files := slices.DeleteFunc(slices.Clone(have.Texts), func(entry string) bool {
		entry = strings.ToLower(entry)
		return strings.HasPrefix(entry, `c:`) || strings.HasPrefix(entry, `?:`) || entry == ""
	})
	files = append([]string{fmt.Sprintf(`C:\pagefile.sys %d %d`, size.InitialMiB, size.MaximumMiB)}, files...)
	return applyAtBoot(ctx, r, "the page file", []setting{{key, "PagingFiles", host.Value{Type: host.MultiString, Texts: files}}})
}

// registerCCGPlugins registers plug-ins of Container Credential Guard: COM servers that know the account of a gMSA on hosts
// outside the domain, see ICcgDomainAuthCredentials in Microsoft's documentation.
func registerCCGPlugins(ctx context.Context, r *engine.Run) error {
	var settings []setting
	for _, p := range r.Doc.OS.CCGPlugins {
		server := `HKLM\SOFTWARE\Classes\CLSID\` + p.CLSID + `\InprocServer32`
		settings = append(settings,
			setting{server, "", host.StringValue(p.Path)},
			setting{server, "ThreadingModel", host.StringValue("Both")},
			setting{`HKLM\SYSTEM\CurrentControlSet\Control\CCG\COMClasses\` + p.CLSID, "", host.StringValue("")},
		)
	}
	return apply(ctx, r, settings, nil)
}

// excludeFromDefender keeps Defender from scanning image layers while containerd unpacks them, which takes most of the time
// that an image takes to start (microsoft/Windows-Containers issue 92). A policy is used, so that no PowerShell is needed.
func excludeFromDefender(ctx context.Context, r *engine.Run) error {
	log := logr.FromContextOrDiscard(ctx)
	_, err := r.Host.Services.Status(ctx, "WinDefend")
	if errors.Is(err, host.ErrNotFound) {
		log.Info("There is no Windows Defender on this machine")
		return nil
	}
	if err != nil {
		return codes.New(codes.HostUnreadable, "looking for Windows Defender: %w", err)
	}
	const key = `HKLM\SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions`
	processes := []string{r.Doc.ContainerRuntime.Path, r.Doc.Kubelet.Path}
	paths := []string{layout.ContainerdRoot, layout.ContainerdState}
	settings := []setting{
		{key, "Exclusions_Processes", host.DWordValue(1)},
		{key, "Exclusions_Paths", host.DWordValue(1)},
	}
	for _, p := range processes {
		settings = append(settings, setting{key + `\Processes`, p, host.StringValue("0")})
	}
	for _, p := range paths {
		settings = append(settings, setting{key + `\Paths`, p, host.StringValue("0")})
	}
	if err := apply(ctx, r, settings, nil); err != nil {
		return err
	}
	log.Info("Windows Defender does not scan these (os.defender: None would let it)", "processes", processes, "paths", paths)
	return nil
}
