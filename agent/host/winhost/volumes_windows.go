//go:build windows

package winhost

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/windows"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

type volumes struct{}

func newVolumes() *volumes { return &volumes{} }

// List leaves out drives without a medium, and those of the network, which may take minutes to answer.
func (*volumes) List(ctx context.Context) ([]host.Volume, error) {
	drives, err := windows.GetLogicalDrives()
	if err != nil {
		return nil, failed(err, "list drives")
	}
	var list []host.Volume
	for i := range 26 {
		if drives&(1<<i) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if v, found := volumeAt(fmt.Sprintf(`%c:\`, 'A'+i)); found {
			list = append(list, v)
		}
	}
	return list, nil
}

// volumeAt describes the volume of a drive; false if nothing can be read there.
func volumeAt(root string) (host.Volume, bool) {
	v := host.Volume{Root: root}
	rootPointer := utf16Pointer(root)
	switch windows.GetDriveType(rootPointer) {
	case windows.DRIVE_FIXED:
		v.Kind = host.VolumeFixed
	case windows.DRIVE_REMOVABLE:
		v.Kind = host.VolumeRemovable
	case windows.DRIVE_CDROM:
		v.Kind = host.VolumeCDROM
	case windows.DRIVE_REMOTE, windows.DRIVE_NO_ROOT_DIR:
		return v, false
	default:
		v.Kind = host.VolumeOther
	}
	var label, fileSystem [windows.MAX_PATH + 1]uint16
	if err := windows.GetVolumeInformation(rootPointer, &label[0], uint32(len(label)), nil, nil, nil, &fileSystem[0],
		uint32(len(fileSystem))); err != nil {
		return v, false
	}
	v.Label = strings.TrimRight(windows.UTF16ToString(label[:]), " ")
	v.FileSystem = windows.UTF16ToString(fileSystem[:])
	// A volume without sizes is still one that can be read.
	_ = windows.GetDiskFreeSpaceEx(rootPointer, nil, &v.TotalBytes, &v.FreeBytes)
	return v, true
}
