// Package bootstrap turns a WindowsConfig, with the Machine and Cluster it belongs to and the secrets it needs, into
// a NodeConfiguration. It is pure: no client, no clock.
package bootstrap
