package winhost

import (
	"fmt"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

// dynamicPortCommands returns the arguments of netsh that set the range of local ports for outgoing TCP connections.
//
// The limits are those that it documents: a range begins above 1024, has 255 ports at least, and ends with 65535.
func dynamicPortCommands(start, count uint16) ([][]string, error) {
	if start < 1025 || count < 255 || int(start)+int(count) > 65536 {
		return nil, fmt.Errorf("dynamic ports from %d, %d of them: %w", start, count, host.ErrInvalid)
	}
	commands := [][]string{}
	for _, family := range []string{"ipv4", "ipv6"} {
		commands = append(commands, []string{"interface", family, "set", "dynamicportrange", "protocol=tcp",
			fmt.Sprintf("startport=%d", start), fmt.Sprintf("numberofports=%d", count), persistent})
	}
	return commands, nil
}
