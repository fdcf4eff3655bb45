// Package bootstrap holds the rules of the bootstrap provider: what a WindowsConfig may say, and what it becomes
// together with the Machine and Cluster that it belongs to: a NodeConfiguration, the whole of what one node shall be.
//
// It is pure: no client, no clock, no randomness. What a rule needs comes in as a value, so that the same rules hold in
// the controller, in the webhooks and on the command line.
package bootstrap
