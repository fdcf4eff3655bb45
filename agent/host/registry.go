package host

import "context"

// Registry is the Windows registry, 64-bit view. Keys begin with HKLM\ or HKU\; names and keys are case-insensitive.
type Registry interface {
	// Get returns a value; ErrNotFound if there is none. The name "" is the key's default value.
	Get(ctx context.Context, key, name string) (Value, error)
	// Set sets a value, and makes the key with its parents. It also works on keys that belong to TrustedInstaller.
	Set(ctx context.Context, key, name string, v Value) error
	// Delete removes a value; a missing one is success.
	Delete(ctx context.Context, key, name string) error
	// Names returns the names of a key's values, and of its subkeys, sorted. ErrNotFound if there is no such key.
	Names(ctx context.Context, key string) (values, subkeys []string, err error)
	// DeleteKey removes a key with all below it; a missing one is success.
	DeleteKey(ctx context.Context, key string) error
}

// Value is a registry value.
type Value struct {
	Type ValueType `json:"type"`
	// Text of String and ExpandString, Texts of MultiString, Number of DWord and QWord, Bytes of Binary.
	Text   string   `json:"text,omitempty"`
	Texts  []string `json:"texts,omitempty"`
	Number uint64   `json:"number,omitempty"`
	Bytes  []byte   `json:"bytes,omitempty"`
}

// ValueType of a registry value.
type ValueType string

// Value types.
const (
	String       ValueType = "String"
	ExpandString ValueType = "ExpandString"
	MultiString  ValueType = "MultiString"
	DWord        ValueType = "DWord"
	QWord        ValueType = "QWord"
	Binary       ValueType = "Binary"
)

// DWordValue returns a number of 32 bits.
func DWordValue(n uint32) Value { return Value{Type: DWord, Number: uint64(n)} }

// StringValue returns a text.
func StringValue(s string) Value { return Value{Type: String, Text: s} }
