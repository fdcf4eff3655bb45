//go:build windows

package winhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// certificates is the system store ROOT of the machine, in crypt32.dll. It is read as a whole, with what group policy and
// Windows Update bring; changed is its part in the registry, which is the one that an administrator can change.
type certificates struct{}

func newCertificates() *certificates { return &certificates{} }

// systemCertificatesKey is where the store keeps what is added to it.
const systemCertificatesKey = `HKLM\SOFTWARE\Microsoft\SystemCertificates`

const (
	// certStoreReadonly is CERT_STORE_READONLY_FLAG.
	certStoreReadonly = 0x8000
	// certEncoding is X.509.
	certEncoding = windows.X509_ASN_ENCODING
)

func (c *certificates) Roots(ctx context.Context) ([]string, error) {
	out := []string{}
	err := withRoots(ctx, windows.CERT_STORE_PROV_SYSTEM_W, certStoreReadonly, func(store windows.Handle) error {
		return eachCertificate(store, func(context *windows.CertContext) error {
			out = append(out, fingerprintOf(context))
			return nil
		})
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

func (c *certificates) AddRoot(ctx context.Context, der []byte) error {
	if len(der) == 0 {
		return fmt.Errorf("add a root certificate: %w: it is empty", host.ErrInvalid)
	}
	return changeRoots(ctx, func(store windows.Handle) error {
		context, err := windows.CertCreateCertificateContext(certEncoding, &der[0], uint32(len(der)))
		if err != nil {
			return fmt.Errorf("add a root certificate: %w: %w", host.ErrInvalid, err)
		}
		defer func() { _ = windows.CertFreeCertificateContext(context) }()
		if err := windows.CertAddCertificateContextToStore(store, context, windows.CERT_STORE_ADD_USE_EXISTING, nil); err != nil {
			return failed(err, "add root certificate %s", fingerprintOf(context))
		}
		return nil
	})
}

func (c *certificates) RemoveRoot(ctx context.Context, fingerprint string) error {
	return changeRoots(ctx, func(store windows.Handle) error {
		found := []*windows.CertContext{}
		err := eachCertificate(store, func(context *windows.CertContext) error {
			if strings.EqualFold(fingerprintOf(context), fingerprint) {
				found = append(found, windows.CertDuplicateCertificateContext(context))
			}
			return nil
		})
		for _, context := range found {
			// It frees the context, also when it fails.
			err = errors.Join(err, failed(windows.CertDeleteCertificateFromStore(context), "remove root certificate %s", fingerprint))
		}
		return err
	})
}

// changeRoots calls do with the part of the store that can be changed.
func changeRoots(ctx context.Context, do func(store windows.Handle) error) error {
	if err := withRoots(ctx, windows.CERT_STORE_PROV_SYSTEM_REGISTRY_W, 0, do); err != nil {
		return err
	}
	return flushHive(systemCertificatesKey) // what is changed may be written as late as the store is closed
}

// withRoots calls do with the store as a provider shows it.
func withRoots(ctx context.Context, provider uintptr, flags uint32, do func(store windows.Handle) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name := utf16Pointer("ROOT")
	store, err := windows.CertOpenStore(provider, 0, 0, windows.CERT_SYSTEM_STORE_LOCAL_MACHINE|flags, uintptr(unsafe.Pointer(name)))
	runtime.KeepAlive(name)
	if err != nil {
		return failed(err, "open the certificate store LocalMachine ROOT")
	}
	return errors.Join(do(store), windows.CertCloseStore(store, 0))
}

// eachCertificate calls do with each. Deleting is for after it has returned.
func eachCertificate(store windows.Handle, do func(context *windows.CertContext) error) error {
	var context *windows.CertContext
	for {
		var err error
		context, err = windows.CertEnumCertificatesInStore(store, context) // frees the one before
		if context == nil {
			// CRYPT_E_NOT_FOUND at the end, ERROR_NO_MORE_FILES for some kinds of stores.
			if errors.Is(err, syscall.Errno(windows.CRYPT_E_NOT_FOUND)) || errors.Is(err, windows.ERROR_NO_MORE_FILES) {
				return nil
			}
			return failed(err, "list the certificates of LocalMachine ROOT")
		}
		if err := do(context); err != nil {
			_ = windows.CertFreeCertificateContext(context)
			return err
		}
	}
}

// fingerprintOf returns the SHA-256 of a certificate, which the store knows by its SHA-1 only.
func fingerprintOf(context *windows.CertContext) string {
	sum := sha256.Sum256(unsafe.Slice(context.EncodedCert, context.Length))
	return hex.EncodeToString(sum[:])
}
