package vsphere

import (
	"fmt"
	"slices"

	infrav1 "github.com/capw-dev/cluster-api-provider-windows/api/infrastructure/v1alpha1"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// placement is where a VM shall be created.
type placement struct {
	infrav1.VSpherePlacement
	// failureDomain that overrides fields; nil for none.
	failureDomain *infrav1.VSphereFailureDomain
}

// placementOf returns the placement of m: that of the specification, overridden field by field by its failure domain.
func placementOf(m infrastructure.Machine) (placement, error) {
	spec := m.Spec.VSphere
	if spec == nil {
		return placement{}, &infrastructure.ConfigError{Field: "spec.vsphere", Problem: "is required on this platform: set it"}
	}
	p := placement{VSpherePlacement: spec.VSpherePlacement}
	if m.FailureDomain == "" {
		return p, nil
	}
	i := slices.IndexFunc(spec.FailureDomains, func(d infrav1.VSphereFailureDomain) bool { return d.Name == m.FailureDomain })
	if i < 0 {
		known := make([]string, 0, len(spec.FailureDomains))
		for _, d := range spec.FailureDomains {
			known = append(known, d.Name)
		}
		return placement{}, &infrastructure.FailureDomainError{Name: m.FailureDomain, Known: known}
	}
	p.failureDomain = &spec.FailureDomains[i]
	for _, f := range placementFields() {
		if v := *f.value(&p.failureDomain.VSpherePlacement); v != "" {
			*f.value(&p.VSpherePlacement) = v
		}
	}
	return p, nil
}

// ofFolder is the part of p that names the VM folder.
func (p placement) ofFolder() placement {
	p.VSpherePlacement = infrav1.VSpherePlacement{Datacenter: p.Datacenter, Folder: p.Folder}
	return p
}

// placementField is one field of a placement.
type placementField struct {
	name  string
	value func(*infrav1.VSpherePlacement) *string
}

func placementFields() []placementField {
	return []placementField{
		{"datacenter", func(p *infrav1.VSpherePlacement) *string { return &p.Datacenter }},
		{"template", func(p *infrav1.VSpherePlacement) *string { return &p.Template }},
		{"folder", func(p *infrav1.VSpherePlacement) *string { return &p.Folder }},
		{"resourcePool", func(p *infrav1.VSpherePlacement) *string { return &p.ResourcePool }},
		{"datastore", func(p *infrav1.VSpherePlacement) *string { return &p.Datastore }},
		{"network", func(p *infrav1.VSpherePlacement) *string { return &p.Network }},
	}
}

// path returns where the value of a field stands in the WindowsMachine.
func (p placement) path(field string) string {
	for _, f := range placementFields() {
		if f.name == field && p.failureDomain != nil && *f.value(&p.failureDomain.VSpherePlacement) != "" {
			return fmt.Sprintf("spec.vsphere.failureDomains[%s].%s", p.failureDomain.Name, field)
		}
	}
	return "spec.vsphere." + field
}
