//go:build linux

package wine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// forwarder returns a 64-bit DLL that has no code: each of its exports is another DLL's function, "dll.Function".
func forwarder(name string, exports map[string]string) ([]byte, error) {
	const (
		address   = 0x1000 // of the only section, in memory
		alignment = 0x200  // of it, in the file
		headers   = 0x400
		machine   = 0x8664 // AMD64
		isDLL     = 0x2022 // EXECUTABLE_IMAGE | LARGE_ADDRESS_AWARE | DLL
		optional  = 240    // size of the optional header
	)
	names := make([]string, 0, len(exports))
	for n := range exports {
		names = append(names, n)
	}
	slices.Sort(names) // the loader searches by bisection

	// The section: export directory, then the tables of functions, names and ordinals, then strings. A function whose
	// address lies within the section is the name of the one that it forwards to.
	const directory = 40
	n := len(names)
	functionTable := directory
	nameTable := functionTable + 4*n
	ordinalTable := nameTable + 4*n
	stringPool := ordinalTable + 2*n
	var strings bytes.Buffer
	intern := func(s string) uint32 {
		at := uint32(address + stringPool + strings.Len())
		strings.WriteString(s + "\x00")
		return at
	}
	var functions, nameAddresses []uint32
	var ordinals []uint16
	dllName := intern(name)
	for i, export := range names {
		nameAddresses = append(nameAddresses, intern(export))
		functions = append(functions, intern(exports[export]))
		ordinals = append(ordinals, uint16(i))
	}
	section, err := encode(
		[]uint32{
			0, 0, 0, dllName, 1, uint32(n), uint32(n),
			uint32(address + functionTable), uint32(address + nameTable), uint32(address + ordinalTable),
		},
		functions, nameAddresses, ordinals, strings.Bytes(),
	)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", name, err)
	}
	size := uint32(len(section))
	padded := (size + alignment - 1) &^ (alignment - 1)

	const dosHeader = 0x80
	file, err := encode(
		// DOS header: the magic, and where the PE header is.
		[]byte("MZ"), make([]byte, 58), uint32(dosHeader), make([]byte, dosHeader-64),
		[]byte("PE\x00\x00"),
		// File header: one section, no time, no symbols.
		uint16(machine), uint16(1), uint32(0), uint32(0), uint32(0), uint16(optional), uint16(isDLL),
		// Optional header of PE32+: no code, no entry point, an image of two pages.
		uint16(0x20b), uint16(0), uint32(0), padded, uint32(0), uint32(0), uint32(address),
		uint64(0x180000000), uint32(0x1000), uint32(alignment),
		[]uint16{6, 0, 0, 0, 6, 0}, // versions of system, image, subsystem
		uint32(0), uint32(2*address), uint32(headers), uint32(0),
		uint16(3), uint16(0x160), // console; may be placed anywhere
		[]uint64{0x100000, 0x1000, 0x100000, 0x1000}, uint32(0), uint32(16),
		// Data directories: the exports, and 15 that are empty.
		uint32(address), size, make([]byte, 15*8),
		// Section header: initialized data, to be read.
		[]byte(".edata\x00\x00"), size, uint32(address), padded, uint32(headers), make([]byte, 12), uint32(0x40000040),
	)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", name, err)
	}
	file = append(file, make([]byte, headers-len(file))...)
	return append(append(file, section...), make([]byte, padded-size)...), nil
}

// encode writes fixed-size values one after the other, as little-endian.
func encode(values ...any) ([]byte, error) {
	var out bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
