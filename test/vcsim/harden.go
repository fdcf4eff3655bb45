package vcsim

import (
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// harden guards against a race of the simulator: a VM that is being created is in its folder before it has a name, and a
// search that meets it panics with the search index locked for ever.
func (s *Server) harden() {
	registry := s.model.Service.Context.Map
	for _, o := range registry.AllReference("SearchIndex") {
		if index, ok := o.(*simulator.SearchIndex); ok {
			registry.Put(&searchIndex{index})
		}
	}
}

type searchIndex struct{ *simulator.SearchIndex }

// FindByInventoryPath overrides the simulator's.
func (s *searchIndex) FindByInventoryPath(ctx *simulator.Context, req *types.FindByInventoryPath) soap.HasFault {
	if r := retryPanic(func() soap.HasFault { return s.SearchIndex.FindByInventoryPath(ctx, req) }); r != nil {
		return r
	}
	return &methods.FindByInventoryPathBody{Res: new(types.FindByInventoryPathResponse)}
}

// FindChild overrides the simulator's.
func (s *searchIndex) FindChild(ctx *simulator.Context, req *types.FindChild) soap.HasFault {
	if r := retryPanic(func() soap.HasFault { return s.SearchIndex.FindChild(ctx, req) }); r != nil {
		return r
	}
	return &methods.FindChildBody{Res: new(types.FindChildResponse)}
}

// FindByUuid overrides the simulator's.
//
//nolint:revive // its name is the vim25 method's
func (s *searchIndex) FindByUuid(ctx *simulator.Context, req *types.FindByUuid) soap.HasFault {
	if r := retryPanic(func() soap.HasFault { return s.SearchIndex.FindByUuid(ctx, req) }); r != nil {
		return r
	}
	return &methods.FindByUuidBody{Res: new(types.FindByUuidResponse)}
}

// retryPanic runs f until it does not panic; nil when it always does.
func retryPanic(f func() soap.HasFault) soap.HasFault {
	for range 50 {
		if r := recovered(f); r != nil {
			return r
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

func recovered(f func() soap.HasFault) (r soap.HasFault) {
	defer func() {
		if recover() != nil {
			r = nil
		}
	}()
	return f()
}
