package vsphere

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// explain turns errors of the connection into what a person can act on. Others pass.
func explain(err error, m infrastructure.Machine) error {
	if err == nil || isInfrastructure(err) {
		return err
	}
	vsphere := m.Spec.VSphere
	secret := fmt.Sprintf("Secret %s/%s", m.Owner.Namespace, vsphere.IdentityRef.Name)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, errRetired):
		return err
	case isLoginRefused(err):
		return fmt.Errorf("%w: vCenter %s refuses the credentials (%w): correct the keys %s and %s of %s",
			infrastructure.ErrIdentity, vsphere.Server, err, usernameKey, passwordKey, secret)
	case tlsRemedy(err, secret) != "":
		return fmt.Errorf("%w: vCenter %s cannot be trusted: %w: %s", infrastructure.ErrUnavailable, vsphere.Server, err, tlsRemedy(err, secret))
	case isA[*transportError](err):
		return fmt.Errorf("%w: vCenter %s cannot be reached: %w: check spec.vsphere.server, the network and the vCenter",
			infrastructure.ErrUnavailable, vsphere.Server, err)
	case isFault(err):
		return fmt.Errorf("%w: vCenter %s answers: %s (%w)", infrastructure.ErrUnavailable, vsphere.Server, describe(err), err)
	case isSessionLost(err):
		return fmt.Errorf("%w: vCenter %s: %w", infrastructure.ErrUnavailable, vsphere.Server, err)
	}
	return err
}

func isInfrastructure(err error) bool {
	return errors.Is(err, infrastructure.ErrIdentity) || errors.Is(err, infrastructure.ErrUnavailable) ||
		isA[*infrastructure.ForeignInstanceError](err) || isA[*infrastructure.CreateError](err) || isA[*infrastructure.DeleteError](err) ||
		isA[*infrastructure.ConfigError](err) || isA[*infrastructure.FailureDomainError](err) || isA[*infrastructure.TooLargeError](err)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isFault is true when the vCenter answered with a fault, so that the request had no effect.
func isFault(err error) bool {
	found := false
	if err != nil {
		faultsIn(err, func(types.BaseMethodFault, string, []types.LocalizableMessage) bool {
			found = true
			return true
		})
	}
	return found
}

// faultsIn is fault.In for any error: fault.In panics on an error that unwraps to nil, as *net.DNSError does.
func faultsIn(err any, visit fault.OnFaultFn) {
	switch e := err.(type) {
	case nil:
	case types.HasLocalizedMethodFault, types.BaseMethodFault, interface{ Fault() types.BaseMethodFault }:
		fault.In(err, visit)
	case interface{ Unwrap() error }:
		faultsIn(e.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, u := range e.Unwrap() {
			faultsIn(u, visit)
		}
	}
}

// describe returns the vCenter's own messages along the whole chain of faults. err is an error or a
// *types.LocalizedMethodFault.
func describe(err any) string {
	var chain []string
	faultsIn(err, func(f types.BaseMethodFault, localized string, messages []types.LocalizableMessage) bool {
		kind := reflect.TypeOf(f)
		for kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		link := kind.Name()
		if localized != "" {
			link = fmt.Sprintf("%s (%s)", strings.TrimRight(localized, ". "), kind.Name())
		}
		for _, m := range messages {
			if m.Message != "" && !strings.Contains(link, m.Message) {
				link += ": " + m.Message
			}
		}
		chain = append(chain, link+detail(f))
		return false
	})
	if len(chain) == 0 {
		return "no reason was given"
	}
	return strings.Join(chain, ", caused by ")
}

// detail adds what the messages of some faults leave out, and a person needs.
func detail(f types.BaseMethodFault) string {
	switch f := f.(type) {
	case *types.NoPermission:
		if f.Object != nil {
			return fmt.Sprintf(": grant the privilege %s on %s", f.PrivilegeId, f.Object.Value)
		}
		return ": grant the privilege " + f.PrivilegeId
	case *types.InvalidArgument:
		return fmt.Sprintf(": %s", f.InvalidProperty)
	case *types.ManagedObjectNotFound:
		return ": " + f.Obj.String()
	}
	return ""
}
