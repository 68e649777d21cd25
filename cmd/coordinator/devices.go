package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/status"
)

func devicesListCommand() *cobra.Command {
	var l cli.ConfigLoader
	var json bool
	var by string
	var states []string
	cmd := &cobra.Command{
		Use: "list", Short: "List the enrolled devices, also those that are absent",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "List the devices of the list of keys: whether each trains, is present, or why it takes no part; when " +
			"it was seen; the version of its program, its rows, the rounds that it has worked in, the share of its " +
			"updates that was accepted, the time of a local step, the bytes of this month, and its battery and " +
			"temperature where it tells them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newAPIClient(&l)
			if err != nil {
				return err
			}
			q := url.Values{"sort": {by}, "state": {strings.Join(states, ",")},
				"width": {strconv.Itoa(status.OutputWidth(cmd.OutOrStdout()))}}
			accept := "text/plain"
			if json {
				accept = "application/json"
			}
			answer, err := c.CallRaw(cmd.Context(), http.MethodGet, "/v1/devices?"+q.Encode(), accept, nil)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(answer)
			}
			return err
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().StringVar(&by, "sort", "agent", "sort by "+strings.Join(coordinatorstatus.DeviceSortKeys(), ", ")+
		"; with a leading - in the other direction")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only devices in these states: "+
		strings.Join(coordinatorstatus.DeviceStates, ", "))
	cmd.Flags().BoolVar(&json, "json", false, "print JSON")
	return cmd
}

func devicesCommand() *cobra.Command {
	return cli.GroupCommand("devices", "List, revoke, rotate, rename or reset the devices that may take part",
		devicesListCommand(),
		deviceActionCommand("revoke", "Take a device out of the federation",
			"Take a device out of the list of those that may take part, while the coordinator runs. The round "+
				"under way goes on without it, its next message is dropped and it is told so, its session at the "+
				"broker is ended, and the broker's access rules are written without it. Other devices notice nothing.",
			"%s is revoked: the coordinator ignores it from now on. The broker's access rules (enrol.acl, or "+
				"`coordinator acl`) are written without it within 10 s; they take effect when the broker reads them "+
				"again, as with `systemctl reload mosquitto`\n"),
		rotateDeviceKeyCommand(), renameDeviceCommand(),
		deviceActionCommand("reset", "Hear a device again whose state folder was lost",
			"Have the counter of a device's starts begin anew, so that the coordinator hears it from its next "+
				"message on. A device whose state folder was lost counts from 1 again, and its messages look like "+
				"replayed ones. Another device in its place joins with a key of its own (devices rotate), and needs "+
				"no reset.",
			"%s is heard from its next message on\n"))
}

// deviceActionCommand returns a command that makes the coordinator perform an action on a device.
func deviceActionCommand(verb, short, long, done string) *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Long: long, Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newAPIClient(&l)
			if err != nil {
				return err
			}
			path := "/v1/devices/" + url.PathEscape(args[0]) + "/" + verb
			if err := c.Call(cmd.Context(), http.MethodPost, path, nil, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), done, args[0])
			return err
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

func rotateDeviceKeyCommand() *cobra.Command {
	var l cli.ConfigLoader
	w := tokenFlags{}
	cmd := &cobra.Command{
		Use: "rotate ID", Short: "Let a device join again, with a new key",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: "Print the command with which a device, or another one in its place, joins again under the same name: " +
			"with a new key and a new certificate. The present key counts until then.",
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Device, w.ReplacedDevice = args[0], args[0]
			return w.printJoinCommand(cmd, &l)
		},
	}
	l.AddFlags(cmd, program)
	w.addFlags(cmd)
	return cmd
}

func renameDeviceCommand() *cobra.Command {
	var l cli.ConfigLoader
	w := tokenFlags{}
	cmd := &cobra.Command{
		Use: "rename OLD NEW", Short: "Let a device join again, under another name",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(2)),
		Long: "Print the command with which a device joins again under another name: with a new key and a new " +
			"certificate. When it has, its former name leaves the list.",
		RunE: func(cmd *cobra.Command, args []string) error {
			w.ReplacedDevice, w.Device = args[0], args[1]
			return w.printJoinCommand(cmd, &l)
		},
	}
	l.AddFlags(cmd, program)
	w.addFlags(cmd)
	return cmd
}
