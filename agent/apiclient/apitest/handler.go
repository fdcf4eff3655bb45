package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
)

// who is the key of a request's identity in its context.
type who struct{}

func caller(r *http.Request) identity { return r.Context().Value(who{}).(identity) } // authenticate sets it

// answer is what a handler returns: an object, or an error that is an APIStatus.
type answer func(r *http.Request) (any, error)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, do := range map[string]answer{
		"GET /api/v1/namespaces/{namespace}/configmaps/{name}":                      s.getConfigMap,
		"GET /api/v1/nodes/{name}":                                                  s.getNode,
		"POST /api/v1/nodes":                                                        s.createNode,
		"PUT /api/v1/nodes/{name}/status":                                           s.putNodeStatus,
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}": s.getLease,
		"POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases":       s.postLease,
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}": s.putLease,
		"GET /apis/certificates.k8s.io/v1/certificatesigningrequests/{name}":        s.getCSR,
		"POST /apis/certificates.k8s.io/v1/certificatesigningrequests":              s.createCSR,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			object, err := do(r)
			respond(w, object, err)
		})
	}
	mux.HandleFunc("GET /api/v1/nodes", s.watchNodes)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the server could not find the requested resource", 0, true))
	})
	return s.authenticate(mux)
}

// authenticate finds out who asks, keeps a record, and lets the test answer.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var certificate *identity
		if len(r.TLS.VerifiedChains) > 0 {
			subject := r.TLS.PeerCertificates[0].Subject
			certificate = &identity{name: subject.CommonName, groups: subject.Organization}
		}
		bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		s.mu.Lock()
		user, known := s.user(bearer, certificate)
		request := Request{User: user.name, Groups: user.groups, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery}
		s.log = append(s.log, request)
		intercept, down := s.intercept, s.down
		s.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		if intercept != nil {
			if a := intercept(request); a != nil {
				if a.Code == 0 {
					panic(http.ErrAbortHandler)
				}
				respond(w, nil, apierrors.NewGenericServerResponse(a.Code, r.Method, schema.GroupResource{}, "", a.Message, 0, true))
				return
			}
		}
		if !known {
			respond(w, nil, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), who{}, user)))
	})
}

func respond(w http.ResponseWriter, object any, err error) {
	code := http.StatusOK
	if err != nil {
		status := apierrors.APIStatus(nil)
		if coded, ok := err.(apierrors.APIStatus); ok {
			status = coded
		} else {
			status = apierrors.NewInternalError(err)
		}
		failure := status.Status()
		failure.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		object, code = failure, int(failure.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	must(json.NewEncoder(discardErrors{w}).Encode(object))
}

// discardErrors is for answers that nobody reads any more.
type discardErrors struct{ http.ResponseWriter }

func (d discardErrors) Write(b []byte) (int, error) {
	d.ResponseWriter.Write(b) //nolint:errcheck // see above
	return len(b), nil
}

func forbidden(r *http.Request, group, resource, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, name,
		fmt.Errorf("user %q cannot %s it", caller(r).name, strings.ToLower(r.Method)))
}

func notFound(group, resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: resource}, name)
}

func (s *Server) getConfigMap(r *http.Request) (any, error) {
	namespace, name, user := r.PathValue("namespace"), r.PathValue("name"), caller(r)
	cm := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case namespace == metav1.NamespacePublic && name == bootstrapapi.ConfigMapClusterInfo:
		cm.Data = s.clusterInfo()
	case namespace != metav1.NamespaceSystem || !user.in(bootstrappers) && user.node() == "":
		return nil, forbidden(r, "", "configmaps", name)
	case name == "kubelet-config" && s.opts.KubeletConfig != "none":
		cm.Data = map[string]string{"kubelet": s.opts.KubeletConfig}
	default:
		return nil, notFound("", "configmaps", name)
	}
	return cm, nil
}

// clusterInfo returns the data of ConfigMap cluster-info. s.mu is held.
func (s *Server) clusterInfo() map[string]string {
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: "https://" + s.opts.Endpoint, CertificateAuthorityData: s.authority.pem()}
	kubeconfig, err := clientcmd.Write(*config)
	must(err)
	data := map[string]string{bootstrapapi.KubeConfigKey: string(kubeconfig)}
	for token := range s.tokens {
		if !s.signed {
			break
		}
		id, secret, _ := strings.Cut(token, ".")
		signature, err := jws.ComputeDetachedSignature(string(kubeconfig), id, secret)
		must(err)
		data[bootstrapapi.JWSSignatureKeyPrefix+id] = signature
	}
	return data
}

// touch makes a new resource version and wakes watches. s.mu is held.
func (s *Server) touch() string {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
	return strconv.FormatInt(s.version, 10)
}
