// Package containerd renders containerd's configuration: config.toml in the layout of the containerd that will read it, and
// a hosts.toml per registry. It is pure: what it needs comes in, and bytes come out.
package containerd
