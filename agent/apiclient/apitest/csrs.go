package apitest

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	csrGroup    = "certificates.k8s.io"
	csrResource = "certificatesigningrequests"
)

var errChanged = errors.New("the object has been modified")

func (s *Server) getCSR(r *http.Request) (any, error) {
	name := r.PathValue("name")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch csr := s.requests[name]; {
	case csr == nil:
		return nil, notFound(csrGroup, csrResource, name)
	case csr.Spec.Username != caller(r).name:
		return nil, forbidden(r, csrGroup, csrResource, name)
	default:
		return csr.DeepCopy(), nil
	}
}

func (s *Server) createCSR(r *http.Request) (any, error) {
	user := caller(r)
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := json.NewDecoder(r.Body).Decode(csr); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !user.in(bootstrappers) && user.node() == "" {
		return nil, forbidden(r, csrGroup, csrResource, csr.Name)
	}
	if _, err := parseRequest(csr.Spec.Request); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if csr.Name == "" {
		csr.Name = csr.GenerateName + strconv.Itoa(len(s.requests))
	}
	if s.requests[csr.Name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Group: csrGroup, Resource: csrResource}, csr.Name)
	}
	csr.TypeMeta = metav1.TypeMeta{APIVersion: csrGroup + "/v1", Kind: "CertificateSigningRequest"}
	csr.UID, csr.CreationTimestamp = types.UID("csr-"+strconv.Itoa(len(s.requests))), metav1.Now()
	csr.Spec.Username, csr.Spec.Groups = user.name, user.groups
	csr.Status = certificatesv1.CertificateSigningRequestStatus{}
	s.requests[csr.Name] = csr
	created := csr.DeepCopy()
	s.settle(csr)
	return created, nil
}

// settle decides about a request that is pending, as approver and signer of kube-controller-manager do. s.mu is held.
func (s *Server) settle(csr *certificatesv1.CertificateSigningRequest) {
	if len(csr.Status.Conditions) > 0 {
		return
	}
	decision := s.decide(csr)
	if decision == Hold {
		return
	}
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", LastUpdateTime: metav1.Now(),
	}
	if decision == Deny {
		condition.Type, condition.Reason = certificatesv1.CertificateDenied, "Denied"
	}
	csr.Status.Conditions = append(csr.Status.Conditions, condition)
	if decision == Deny {
		return
	}
	var err error
	if csr.Status.Certificate, err = s.issue(csr); err != nil {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
		})
	}
}

func (s *Server) issue(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	request, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return nil, err
	}
	requested := identity{name: request.Subject.CommonName, groups: request.Subject.Organization}
	if requested.node() == "" {
		return nil, fmt.Errorf("%q is no node", requested.name)
	}
	switch csr.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return s.authority.sign(csr.Spec.Request, x509.ExtKeyUsageClientAuth)
	case certificatesv1.KubeletServingSignerName:
		if csr.Spec.Username != requested.name {
			return nil, fmt.Errorf("%s asks for a serving certificate of %s", csr.Spec.Username, requested.name)
		}
		return s.authority.sign(csr.Spec.Request, x509.ExtKeyUsageServerAuth)
	default:
		return nil, fmt.Errorf("there is no signer %s", csr.Spec.SignerName)
	}
}
