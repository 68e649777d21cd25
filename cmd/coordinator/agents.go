package main

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/status"
)

func agentsCommand() *cobra.Command {
	var l cli.Loader
	var json bool
	var by string
	var states []string
	cmd := &cobra.Command{
		Use: "agents", Short: "List the enrolled devices, also those that are absent", Args: cli.Args(cobra.NoArgs),
		Long: "List the devices of the list of keys: whether each trains, is present, or why it takes no part; when " +
			"it was seen; the version of its program, its rows, the rounds that it has worked in, the share of its " +
			"updates that was accepted, the time of a local step, the bytes of this month, and its battery and " +
			"temperature where it tells them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := client(&l)
			if err != nil {
				return err
			}
			q := url.Values{"sort": {by}, "state": {strings.Join(states, ",")},
				"width": {strconv.Itoa(status.Width(cmd.OutOrStdout()))}}
			accept := "text/plain"
			if json {
				accept = "application/json"
			}
			answer, err := c.Raw(cmd.Context(), http.MethodGet, "/v1/agents?"+q.Encode(), accept, nil)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(answer)
			}
			return err
		},
	}
	l.Flags(cmd, program)
	cmd.Flags().StringVar(&by, "sort", "agent", "sort by "+strings.Join(status.DeviceOrders(), ", ")+
		"; with a leading - in the other direction")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only devices in these states: "+
		strings.Join(status.DeviceStates, ", "))
	cmd.Flags().BoolVar(&json, "json", false, "print JSON")
	return cmd
}
