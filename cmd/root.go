// Package cmd is the command line of capw.
package cmd

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capw-dev/cluster-api-provider-windows/version"
)

// NewRoot returns the capw command with all its subcommands.
func NewRoot() *cobra.Command {
	root := &cobra.Command{
		Use:          "capw",
		Short:        "Cluster API provider for Windows workers",
		SilenceUsage: true,
	}
	root.AddCommand(newManager(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := fmt.Fprintln(c.OutOrStdout(), version.Get())
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(version.Get())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "Print as JSON.")
	return c
}
