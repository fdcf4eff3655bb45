package vsphere

import (
	"errors"
	"fmt"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/capw-dev/cluster-api-provider-windows/cloudinit/cloudbase"
	"github.com/capw-dev/cluster-api-provider-windows/infrastructure"
)

// extraConfig returns owner mark, metadata and user data. Errors: *infrastructure.TooLargeError.
func extraConfig(m infrastructure.Machine, userData []byte) ([]types.BaseOptionValue, error) {
	mark, err := markOf(m.Owner)
	if err != nil {
		return nil, err
	}
	metadata, err := cloudbase.Metadata(instanceUUID(m.Owner.UID), m.InstanceName)
	if err != nil {
		return nil, fmt.Errorf("making the metadata of VM %s: %w", m.InstanceName, err)
	}
	values, err := cloudbase.GuestInfo(metadata, userData)
	var tooLarge *cloudbase.TooLargeError
	if errors.As(err, &tooLarge) {
		return nil, &infrastructure.TooLargeError{What: tooLarge.What, Size: tooLarge.Size, Limit: tooLarge.Limit}
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the guest data of VM %s: %w", m.InstanceName, err)
	}
	options := []types.BaseOptionValue{
		&types.OptionValue{Key: markKey, Value: mark},
		// The guest sees the disks' serial numbers, by which the vSphere CSI driver finds its volumes.
		&types.OptionValue{Key: "disk.EnableUUID", Value: "TRUE"},
	}
	for _, v := range values {
		options = append(options, &types.OptionValue{Key: v.Key, Value: v.Value})
	}
	return options, nil
}

// cloneRequest is the one request that creates a VM.
func cloneRequest(m infrastructure.Machine, t *target, extraConfig []types.BaseOptionValue) *types.CloneVM_Task {
	spec := m.Spec.VSphere
	config := &types.VirtualMachineConfigSpec{
		InstanceUuid: instanceUUID(m.Owner.UID),
		NumCPUs:      spec.NumCPUs,
		MemoryMB:     spec.MemoryMiB,
		ExtraConfig:  extraConfig,
	}
	if spec.NumCoresPerSocket != 0 {
		config.NumCoresPerSocket = &spec.NumCoresPerSocket
	}
	if t.network != nil {
		config.DeviceChange = []types.BaseVirtualDeviceConfigSpec{t.network}
	}
	return &types.CloneVM_Task{
		This:   t.template,
		Folder: t.folder,
		Name:   m.InstanceName,
		Spec: types.VirtualMachineCloneSpec{
			Location: types.VirtualMachineRelocateSpec{Folder: &t.folder, Pool: &t.pool, Datastore: t.datastore},
			Config:   config,
			PowerOn:  true,
		},
	}
}
