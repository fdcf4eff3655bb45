package apitest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func (s *Server) getNode(r *http.Request) (any, error) {
	name, user := r.PathValue("name"), caller(r)
	if user.node() != name && !user.in(bootstrappers) {
		return nil, forbidden(r, "", "nodes", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[name] == nil {
		return nil, notFound("", "nodes", name)
	}
	return s.nodes[name].DeepCopy(), nil
}

func (s *Server) createNode(r *http.Request) (any, error) {
	node := &corev1.Node{}
	if err := json.NewDecoder(r.Body).Decode(node); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if caller(r).node() != node.Name {
		return nil, forbidden(r, "", "nodes", node.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[node.Name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, node.Name)
	}
	return s.store(node).DeepCopy(), nil
}

func (s *Server) putNodeStatus(r *http.Request) (any, error) {
	name := r.PathValue("name")
	if caller(r).node() != name {
		return nil, forbidden(r, "", "nodes", name)
	}
	node := &corev1.Node{}
	if err := json.NewDecoder(r.Body).Decode(node); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.nodes[name]
	if have == nil {
		return nil, notFound("", "nodes", name)
	}
	if node.ResourceVersion != "" && node.ResourceVersion != have.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, name, errChanged)
	}
	updated := have.DeepCopy()
	updated.Status = node.Status
	return s.store(updated).DeepCopy(), nil
}

// store keeps a Node. s.mu is held.
func (s *Server) store(node *corev1.Node) *corev1.Node {
	node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	if have := s.nodes[node.Name]; have != nil {
		node.UID, node.CreationTimestamp = have.UID, have.CreationTimestamp
	} else {
		node.UID, node.CreationTimestamp = types.UID("node-"+node.Name+"-"+strconv.FormatInt(s.version, 10)), metav1.Now()
	}
	node.ResourceVersion = s.touch()
	s.nodes[node.Name] = node
	return node
}

// watchNodes serves watches of one Node: the only ones that the Node authorizer allows.
func (s *Server) watchNodes(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name, selected := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	if !selected || caller(r).node() != name {
		respond(w, nil, forbidden(r, "", "nodes", ""))
		return
	}
	if query.Get("watch") != "true" {
		respond(w, nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "nodes"}, "list"))
		return
	}
	seen := query.Get("resourceVersion")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	controller := http.NewResponseController(w)
	existed := true
	for {
		s.mu.Lock()
		node, changed := s.nodes[name].DeepCopy(), s.changed
		s.mu.Unlock()
		event := metav1.WatchEvent{}
		switch {
		case node == nil && existed:
			event.Type, node = string(watch.Deleted), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
			existed = false
		case node != nil && !existed:
			event.Type, existed = string(watch.Added), true
		case node != nil && node.ResourceVersion != seen:
			event.Type = string(watch.Modified)
		}
		if event.Type != "" {
			seen = node.ResourceVersion
			event.Object.Object = node
			line, err := json.Marshal(event)
			must(err)
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		if controller.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) getLease(r *http.Request) (any, error) {
	name := r.PathValue("name")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case caller(r).node() != name:
		return nil, forbidden(r, "coordination.k8s.io", "leases", name)
	case s.leases[name] == nil:
		return nil, notFound("coordination.k8s.io", "leases", name)
	}
	return s.leases[name].DeepCopy(), nil
}

func (s *Server) postLease(r *http.Request) (any, error) { return s.keepLease(r, false) }

func (s *Server) putLease(r *http.Request) (any, error) { return s.keepLease(r, true) }

func (s *Server) keepLease(r *http.Request, update bool) (any, error) {
	lease := &coordinationv1.Lease{}
	if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	exists := s.leases[lease.Name] != nil
	switch {
	case caller(r).node() != lease.Name:
		return nil, forbidden(r, "coordination.k8s.io", "leases", lease.Name)
	case exists && !update:
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, lease.Name)
	case !exists && update:
		return nil, notFound("coordination.k8s.io", "leases", lease.Name)
	}
	lease.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	s.leases[lease.Name] = lease
	return lease.DeepCopy(), nil
}
