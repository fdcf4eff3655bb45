// Package bootstrap holds the admission webhooks of the bootstrap provider. They say what the CRD schemas and their CEL
// rules cannot; the rules themselves are those of the bootstrap package, which the controller applies too.
package bootstrap
