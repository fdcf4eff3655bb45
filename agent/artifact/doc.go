// Package artifact gets the files that a node needs: it downloads them so that an interruption costs little, checks them,
// and unpacks archives without trusting them. It knows what to do with bytes, and nothing of nodes.
package artifact
