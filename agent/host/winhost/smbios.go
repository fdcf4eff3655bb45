package winhost

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// platform is what the firmware says of the machine: SMBIOS structure type 1, System Information.
type platform struct {
	uuid                          [16]byte
	manufacturer, product, serial string
}

// Sizes and places in the firmware table "RSMB" as GetSystemFirmwareTable returns it (RawSMBIOSData: four bytes of version,
// the length of what follows, then the structures), and in SMBIOS structures (DSP0134, chapters 6.1 and 7.2).
const (
	rawHeader        = 8
	structureHeader  = 4
	typeSystem       = 1
	typeEndOfTable   = 127
	offsetMaker      = 0x04
	offsetProduct    = 0x05
	offsetSerial     = 0x07
	offsetUUID       = 0x08
	lengthWithUUID   = 0x19 // since SMBIOS 2.1
	lengthWithSerial = 0x08 // SMBIOS 2.0
)

// parseSMBIOS reads the table. The UUID's bytes stay in the table's order, of which the first three fields are little-endian
// since SMBIOS 2.6; who shows it as text has to know.
func parseSMBIOS(raw []byte) (platform, error) {
	if len(raw) < rawHeader {
		return platform{}, fmt.Errorf("SMBIOS table of %d bytes", len(raw))
	}
	table := raw[rawHeader:]
	if n := binary.LittleEndian.Uint32(raw[4:]); uint64(n) < uint64(len(table)) {
		table = table[:n]
	}
	for len(table) >= structureHeader {
		kind, length := table[0], int(table[1])
		if length < structureHeader || length > len(table) {
			return platform{}, fmt.Errorf("SMBIOS structure of type %d says that it has %d bytes, of %d left", kind, length, len(table))
		}
		formatted, rest := table[:length], table[length:]
		// The strings of a structure, each with a NUL, end with another NUL; no string at all is two of them.
		end := bytes.Index(rest, []byte{0, 0})
		if end < 0 {
			end = len(rest)
		}
		switch kind {
		case typeSystem:
			return systemInformation(formatted, strings.Split(string(rest[:end]), "\x00"))
		case typeEndOfTable:
			return platform{}, errNoSystemInformation()
		}
		table = rest[min(end+2, len(rest)):]
	}
	return platform{}, errNoSystemInformation()
}

func errNoSystemInformation() error {
	return fmt.Errorf("SMBIOS has no structure of type %d (System Information)", typeSystem)
}

func systemInformation(formatted []byte, texts []string) (platform, error) {
	if len(formatted) < lengthWithSerial {
		return platform{}, fmt.Errorf("SMBIOS System Information of %d bytes", len(formatted))
	}
	text := func(offset int) string {
		if n := int(formatted[offset]); n > 0 && n <= len(texts) {
			return strings.TrimSpace(texts[n-1])
		}
		return ""
	}
	p := platform{manufacturer: text(offsetMaker), product: text(offsetProduct), serial: text(offsetSerial)}
	if len(formatted) >= lengthWithUUID {
		copy(p.uuid[:], formatted[offsetUUID:])
	}
	return p, nil
}
