package sim

import (
	"slices"
	"strings"
)

// folded is a map whose keys are case-insensitive and keep the case that they were first set with, as most names of Windows.
type folded[T any] struct {
	entries map[string]entry[T]
}

type entry[T any] struct {
	name  string
	value T
}

func fold(name string) string { return strings.ToLower(name) }

func (f *folded[T]) get(name string) (T, bool) {
	e, ok := f.entries[fold(name)]
	return e.value, ok
}

func (f *folded[T]) set(name string, value T) {
	if f.entries == nil {
		f.entries = map[string]entry[T]{}
	}
	if e, ok := f.entries[fold(name)]; ok {
		name = e.name
	}
	f.entries[fold(name)] = entry[T]{name: name, value: value}
}

func (f *folded[T]) remove(name string) { delete(f.entries, fold(name)) }

// names returns the keys as they were written, sorted without regard to case.
func (f *folded[T]) names() []string {
	keys := make([]string, 0, len(f.entries))
	for k := range f.entries {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		keys[i] = f.entries[k].name
	}
	return keys
}

// all returns a copy with the names as written.
func (f *folded[T]) all() map[string]T {
	out := make(map[string]T, len(f.entries))
	for _, e := range f.entries {
		out[e.name] = e.value
	}
	return out
}
