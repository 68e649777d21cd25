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
		Use: "list", Short: "List the enrolled devices, including devices that are offline",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "List the enrolled devices. The table shows the state of each device with its reason, the time of its " +
			"last message, the program version and the number of rows. It also shows the rounds in which the device " +
			"participated, the share of accepted updates, the time of a local step and the bytes sent this month. " +
			"Battery level and temperature appear if the device reports them.",
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
	cmd.Flags().StringVar(&by, "sort", "agent",
		"column by which to sort: "+strings.Join(coordinatorstatus.DeviceSortKeys(), ", ")+
			"; put - before the name to reverse the order")
	cmd.Flags().StringSliceVar(&states, "state", nil, "show only devices in these states: "+
		strings.Join(coordinatorstatus.DeviceStates, ", "))
	cmd.Flags().BoolVar(&json, "json", false, "print JSON")
	return cmd
}

func devicesCommand() *cobra.Command {
	return cli.GroupCommand("devices", "List, revoke, rotate, rename or reset the devices of the federation",
		devicesListCommand(),
		deviceActionCommand("revoke", "Remove a device from the federation",
			"Remove a device from the list of agents while the coordinator runs. The current round continues without "+
				"the device. The coordinator ignores the device from then on, notifies it, ends its session at the "+
				"broker, and removes it from the broker's access rules. Other devices are not affected.",
			"%s is revoked, and the coordinator ignores its messages. The broker's access rules (enrol.acl, or "+
				"`coordinator acl`) are rewritten within 10 s; they take effect when the broker reloads them, for "+
				"example with `systemctl reload mosquitto`\n"),
		rotateDeviceKeyCommand(), renameDeviceCommand(),
		deviceActionCommand("reset", "Accept a device again after it lost its state folder",
			"Reset the start counter of a device, so that the coordinator accepts its next message. A device that "+
				"lost its state folder counts its starts from 1 again, so its messages look like replayed ones. If "+
				"another device takes its place, use `devices rotate` instead; that device has a new key and needs no "+
				"reset.",
			"the coordinator accepts messages from %s again\n"))
}

// deviceActionCommand returns a command that requests an action on a device from the coordinator.
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
		Use: "rotate ID", Short: "Let a device join again with a new key",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: "Print the command with which a device, or the device that replaces it, joins again under the same " +
			"name, with a new key and a new certificate. The current key remains valid until then.",
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
		Use: "rename OLD NEW", Short: "Let a device join again under a new name",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(2)),
		Long: "Print the command with which a device joins again under a new name, with a new key and a new " +
			"certificate. After it has joined, the list no longer contains its previous name.",
		RunE: func(cmd *cobra.Command, args []string) error {
			w.ReplacedDevice, w.Device = args[0], args[1]
			return w.printJoinCommand(cmd, &l)
		},
	}
	l.AddFlags(cmd, program)
	w.addFlags(cmd)
	return cmd
}
