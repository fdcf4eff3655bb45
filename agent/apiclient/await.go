package apiclient

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// pollInterval is the pause between two looks at a Node that cannot be watched.
const pollInterval = 2 * time.Second

// AwaitNode watches a Node until done says true or ctx ends, and returns the Node as it was seen last, or nil if there is
// none. The error is nil when done said true; else it is why the Node could not be read last, or ctx's. Where a watch is not
// possible it polls.
func (c *Client) AwaitNode(ctx context.Context, name string, done func(*corev1.Node) bool) (*corev1.Node, error) {
	var seen *corev1.Node
	var last error
	for {
		node, err := c.Node(ctx, name)
		switch {
		case err == nil && done(node):
			return node, nil
		case err == nil:
			var ok bool
			if seen, ok = c.follow(ctx, node, done); ok {
				return seen, nil
			}
			last = nil
		case ctx.Err() == nil || last == nil: // else it was cut short
			last = err
			if apierrors.IsNotFound(err) {
				seen = nil
			}
		}
		timer := time.NewTimer(pollInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return seen, cmp.Or(last, ctx.Err())
		}
	}
}

// follow watches from node on, until done says true or the watch ends, and returns the Node as it was seen last.
func (c *Client) follow(ctx context.Context, node *corev1.Node, done func(*corev1.Node) bool) (*corev1.Node, bool) {
	w, err := c.WatchNode(ctx, node.Name, node.ResourceVersion)
	if err != nil {
		return node, false
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return node, false
		case event, open := <-w.ResultChan():
			seen, isNode := event.Object.(*corev1.Node)
			switch {
			case !open || !isNode: // the watch ended, also by an error of the server
				return node, false
			case event.Type == watch.Deleted:
				return nil, false
			}
			if node = seen; done(node) {
				return node, true
			}
		}
	}
}
