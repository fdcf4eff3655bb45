// Package firmware reads what the firmware of a machine says about the platform that it runs on.
package firmware

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// ErrUnknown says that the firmware does not tell the provider ID of the machine.
var ErrUnknown = errors.New("the firmware does not tell the provider ID")

// ProviderID returns the spec.providerID of the Node, as the platform's controllers write it: vsphere://<BIOS UUID>, in lower
// case and in vCenter's order of bytes. The error is ErrUnknown, with what the firmware says instead.
//
// vSphere writes the UUID to the firmware twice: as text in the serial number, "VMware-42 37 0f ...", always in vCenter's
// order, and as SMBIOS' system UUID. Since SMBIOS 2.6 readers take the first three fields of that for little-endian numbers,
// while vSphere kept writing the bytes as they are in vCenter: the UUID that Windows and the kubelet show (systemUUID) is
// therefore another one than vCenter's on hardware version 13 and newer (VMware KB 53609; kubernetes/kubernetes issue 74888).
func ProviderID(info host.Info) (string, error) {
	if !strings.HasPrefix(info.Manufacturer, "VMware") {
		return "", fmt.Errorf("%w: the machine is a %q of %q, not a VM of vSphere", ErrUnknown, info.Product, info.Manufacturer)
	}
	uuid, ok := serialUUID(info.Serial)
	if !ok {
		uuid, ok = systemUUID(info.UUID)
	}
	if !ok {
		return "", fmt.Errorf("%w: neither the serial number %q nor the system UUID %s is one that vSphere gives", ErrUnknown, info.Serial, format(info.UUID))
	}
	return "vsphere://" + format(uuid), nil
}

// serialUUID reads vSphere's serial number. It can be another one: a VM may have SMBIOS.use12CharSerialNumber.
func serialUUID(serial string) (uuid [16]byte, ok bool) {
	text, ok := strings.CutPrefix(strings.TrimSpace(serial), "VMware-")
	if !ok {
		return uuid, false
	}
	raw, err := hex.DecodeString(strings.NewReplacer(" ", "", "-", "").Replace(text))
	if err != nil || len(raw) != len(uuid) {
		return uuid, false
	}
	return [16]byte(raw), true
}

// systemUUID brings SMBIOS' UUID into vCenter's order. Which of the two orders the firmware has shows in the first bytes: UUIDs
// that vCenter gives begin with 42, those of a host with 56 4d.
func systemUUID(table [16]byte) (uuid [16]byte, ok bool) {
	swapped := [16]byte{table[3], table[2], table[1], table[0], table[5], table[4], table[7], table[6]}
	copy(swapped[8:], table[8:])
	for _, candidate := range [][16]byte{table, swapped} {
		if candidate[0] == 0x42 || candidate[0] == 0x56 && candidate[1] == 0x4d {
			return candidate, true
		}
	}
	return uuid, false
}

func format(u [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:])
}
