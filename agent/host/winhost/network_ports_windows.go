//go:build windows

package winhost

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// DynamicPorts asks WMI, the one documented place that says it in numbers. All TCP settings but Automatic have the range.
// https://learn.microsoft.com/windows/win32/fwp/wmi/nettcpipprov/msft-nettcpsetting
func (n *network) DynamicPorts(ctx context.Context) (start, count uint16, err error) {
	err = withCOM(ctx, func() error {
		start, count, err = readDynamicPorts()
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read the dynamic port range: %w", err)
	}
	return start, count, nil
}

func readDynamicPorts() (start, count uint16, err error) {
	locator, err := createObject("WbemScripting.SWbemLocator")
	if err != nil {
		return 0, 0, err
	}
	defer locator.Release()
	services, err := object(oleutil.CallMethod(locator, "ConnectServer", ".", `root\StandardCimv2`))
	if err != nil {
		return 0, 0, comFailed(err, "connect to WMI")
	}
	defer services.Release()
	rows, err := object(oleutil.CallMethod(services, "ExecQuery",
		"SELECT DynamicPortRangeStartPort, DynamicPortRangeNumberOfPorts FROM MSFT_NetTCPSetting"))
	if err != nil {
		return 0, 0, comFailed(err, "query MSFT_NetTCPSetting")
	}
	defer rows.Release()
	err = oleutil.ForEach(rows, func(v *ole.VARIANT) error {
		defer func() { _ = v.Clear() }()
		row := v.ToIDispatch()
		// WMI hands a uint16 on as a 32-bit integer.
		s, err := property[int32](row, "DynamicPortRangeStartPort")
		if err != nil {
			return err
		}
		c, err := property[int32](row, "DynamicPortRangeNumberOfPorts")
		if s > 0 && c > 0 {
			start, count = uint16(s), uint16(c)
		}
		return err
	})
	if err == nil && count == 0 {
		err = fmt.Errorf("MSFT_NetTCPSetting has no range: %w", host.ErrNotSupported)
	}
	return start, count, comFailed(err, "read MSFT_NetTCPSetting")
}

// SetDynamicPorts reads back what netsh did. Where there is no WMI to read with, its exit code counts.
func (n *network) SetDynamicPorts(ctx context.Context, start, count uint16) error {
	commands, err := dynamicPortCommands(start, count)
	if err != nil {
		return err
	}
	for _, args := range commands {
		if err := n.netsh(ctx, change{netsh: args}); err != nil {
			return err
		}
	}
	haveStart, haveCount, err := n.DynamicPorts(ctx)
	switch {
	case errors.Is(err, host.ErrNotSupported):
	case err != nil:
		return err
	case haveStart != start || haveCount != count:
		return fmt.Errorf("set the dynamic port range to %d+%d: it is %d+%d", start, count, haveStart, haveCount)
	}
	return flushHive(tcpipKey)
}
