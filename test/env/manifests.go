package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type objects []*unstructured.Unstructured

// decodeManifests reads the objects of a YAML stream.
func decodeManifests(data []byte) (objects, error) {
	var objs objects
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4<<10)
	for {
		u := &unstructured.Unstructured{}
		switch err := decoder.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return objs, nil
		case err != nil:
			return nil, fmt.Errorf("decoding manifests: %w", err)
		case len(u.Object) > 0:
			objs = append(objs, u)
		}
	}
}

// readManifests reads the objects of the files that match any of the patterns.
func readManifests(patterns ...string) (objects, error) {
	var objs objects
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("reading manifests %s: %w", pattern, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(filepath.Clean(path))
			if err != nil {
				return nil, fmt.Errorf("reading manifests: %w", err)
			}
			more, err := decodeManifests(data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			objs = append(objs, more...)
		}
	}
	return objs, nil
}

// ofKind returns the objects of the given kinds.
func (o objects) ofKind(kinds ...string) objects {
	return slices.DeleteFunc(slices.Clone(o), func(u *unstructured.Unstructured) bool { return !slices.Contains(kinds, u.GetKind()) })
}

// without returns the objects of all other kinds.
func (o objects) without(kinds ...string) objects {
	return slices.DeleteFunc(slices.Clone(o), func(u *unstructured.Unstructured) bool { return slices.Contains(kinds, u.GetKind()) })
}

// create creates the objects, several at a time. What they depend on must be there.
func (c *Cluster) create(ctx context.Context, objs objects) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, o := range objs {
		g.Go(func() error {
			if err := c.Client.Create(ctx, o); err != nil {
				return fmt.Errorf("creating %s %s in %s cluster: %w", o.GetKind(), client.ObjectKeyFromObject(o), c.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// createCRDs creates CustomResourceDefinitions and waits until they are served.
func (c *Cluster) createCRDs(ctx context.Context, crds objects) error {
	if err := c.create(ctx, crds); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		if err := c.Client.List(ctx, list); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(crd apiextensionsv1.CustomResourceDefinition) bool {
			return !apiextensionshelpers.IsCRDConditionTrue(&crd, apiextensionsv1.Established)
		}), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for CustomResourceDefinitions: %w", err)
	}
	return nil
}

// routeWebhooks makes the API server call the webhooks in objs at base ("https://127.0.0.1:9443"), whose certificate ca has
// signed. It stands in for a Service with its endpoints and for cert-manager's CA injector, and leaves the rest of each
// webhook as its project ships it.
func routeWebhooks(objs objects, base string, ca []byte) error {
	for _, u := range objs {
		var err error
		switch u.GetKind() {
		case "MutatingWebhookConfiguration":
			err = edit(u, func(w *admissionv1.MutatingWebhookConfiguration) {
				for i := range w.Webhooks {
					routeAdmission(&w.Webhooks[i].ClientConfig, base, ca)
				}
			})
		case "ValidatingWebhookConfiguration":
			err = edit(u, func(w *admissionv1.ValidatingWebhookConfiguration) {
				for i := range w.Webhooks {
					routeAdmission(&w.Webhooks[i].ClientConfig, base, ca)
				}
			})
		case "CustomResourceDefinition":
			err = edit(u, func(crd *apiextensionsv1.CustomResourceDefinition) {
				if conversion := crd.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
					routeConversion(conversion.Webhook.ClientConfig, base, ca)
				}
			})
		}
		if err != nil {
			return fmt.Errorf("routing webhooks of %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

func routeAdmission(cc *admissionv1.WebhookClientConfig, base string, ca []byte) {
	if cc.Service != nil {
		url := base + deref(cc.Service.Path)
		*cc = admissionv1.WebhookClientConfig{URL: &url, CABundle: ca}
	}
}

func routeConversion(cc *apiextensionsv1.WebhookClientConfig, base string, ca []byte) {
	if cc != nil && cc.Service != nil {
		url := base + deref(cc.Service.Path)
		*cc = apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca}
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// edit changes u through its Go type.
func edit[T any](u *unstructured.Unstructured, change func(*T)) error {
	typed := new(T)
	converter := runtime.DefaultUnstructuredConverter
	if err := converter.FromUnstructured(u.Object, typed); err != nil {
		return err
	}
	change(typed)
	content, err := converter.ToUnstructured(typed)
	if err != nil {
		return err
	}
	u.Object = content
	return nil
}
