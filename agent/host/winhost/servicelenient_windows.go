//go:build windows

package winhost

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// Wine 8 does not keep, or does not return, parts of a service's configuration. In lenient mode they are kept in the values
// under which Windows itself keeps them.

func (s *services) keptDependencies(ctx context.Context, name string) ([]string, error) {
	v, err := s.registry.Get(ctx, servicesKey+`\`+name, "DependOnService")
	return v.Texts, ignoreNotFound(err)
}

func (s *services) keepDependencies(ctx context.Context, name string, dependsOn []string) error {
	if !s.lenient {
		return nil
	}
	key := servicesKey + `\` + name
	if len(dependsOn) == 0 {
		return s.registry.Delete(ctx, key, "DependOnService")
	}
	return s.registry.Set(ctx, key, "DependOnService", host.Value{Type: host.MultiString, Texts: dependsOn})
}

// keptDependents returns the services that depend on one; Wine 8 always says that there is none.
func (s *services) keptDependents(ctx context.Context, name string) ([]string, error) {
	_, all, err := s.registry.Names(ctx, servicesKey)
	if err != nil {
		return nil, err
	}
	var dependents []string
	for _, other := range all {
		dependsOn, err := s.keptDependencies(ctx, other)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(dependsOn, func(d string) bool { return strings.EqualFold(d, name) }) {
			dependents = append(dependents, other)
		}
	}
	return dependents, nil
}

// startDependencies starts what a service depends on, which Wine 8 does not.
func (s *services) startDependencies(ctx context.Context, name string) error {
	if !s.lenient {
		return nil
	}
	dependsOn, err := s.keptDependencies(ctx, name)
	if err != nil {
		return err
	}
	for _, dependency := range dependsOn {
		if err := s.Start(ctx, dependency); err != nil {
			return err
		}
	}
	return nil
}

func (s *services) keptDelayed(ctx context.Context, name string) (bool, error) {
	v, err := s.registry.Get(ctx, servicesKey+`\`+name, "DelayedAutostart")
	return v.Number != 0, ignoreNotFound(err)
}

func (s *services) keepDelayed(ctx context.Context, name string, delayed bool) error {
	key := servicesKey + `\` + name
	if !delayed {
		return s.registry.Delete(ctx, key, "DelayedAutostart")
	}
	return s.registry.Set(ctx, key, "DelayedAutostart", host.DWordValue(1))
}

// recoveryHeader is the length of what stands before the actions: reset period, two unused words, the number of actions,
// the offset of the first. An action is its type and its pause.
const recoveryHeader = 5 * 4

func (s *services) keptRecovery(ctx context.Context, name string) (recovery, error) {
	v, err := s.registry.Get(ctx, servicesKey+`\`+name, "FailureActions")
	if err != nil || len(v.Bytes) < recoveryHeader {
		return recovery{}, ignoreNotFound(err)
	}
	r := recovery{resetAfter: time.Duration(binary.LittleEndian.Uint32(v.Bytes)) * time.Second, nonCrash: true}
	for action := range slices.Chunk(v.Bytes[recoveryHeader:], 8) {
		r.restart = append(r.restart, time.Duration(binary.LittleEndian.Uint32(action[4:]))*time.Millisecond)
	}
	return r, nil
}

func (s *services) keepRecovery(ctx context.Context, name string, r recovery) error {
	key := servicesKey + `\` + name
	if len(r.restart) == 0 {
		return s.registry.Delete(ctx, key, "FailureActions")
	}
	b := make([]byte, 0, recoveryHeader+8*len(r.restart))
	for _, word := range []uint32{uint32(r.resetAfter / time.Second), 0, 0, uint32(len(r.restart)), recoveryHeader} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	for _, pause := range r.restart {
		b = binary.LittleEndian.AppendUint32(b, windows.SC_ACTION_RESTART)
		b = binary.LittleEndian.AppendUint32(b, uint32(pause.Milliseconds()))
	}
	return s.registry.Set(ctx, key, "FailureActions", host.Value{Type: host.Binary, Bytes: b})
}
