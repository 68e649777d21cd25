package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/settings"
)

func keyCommand() *cobra.Command {
	cmd := cli.KeyCommand()
	cmd.AddCommand(rotateKeyCommand())
	return cmd
}

// rotatePatience is the maximum time to wait for the running agent's reply to a request for a new key.
const rotatePatience = 30 * time.Second

func rotateKeyCommand() *cobra.Command {
	var of federationFlag
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace the device's key, both in the running agent and on the coordinator",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Replace the device's key, both in the running agent and on the coordinator.

The agent generates the new key on the device and signs the request with the previous
key. Afterwards the coordinator accepts only the new key. If the coordinator issued the
certificate for the broker, the device also receives a new certificate. The new key and
certificate are stored in the state folder, so keep that folder from now on. The files
that the configuration names are not changed. If the coordinator does not reply, the
agent retries the request, also after a restart.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := uncheckedSettings(settings.DefaultAgent())
			if err := settings.Load(&s, program, l.Path, l.Overrides); err != nil {
				return err
			}
			m, err := of.namedFederation((*settings.Agent)(&s))
			if err != nil {
				return err
			}
			c := api.Client{Program: program, Dir: m.FederationFolder(), Timeout: rotatePatience}
			err = c.Call(cmd.Context(), http.MethodPost, "/v1/key/rotate", api.EmptyBody{}, nil)
			if errors.Is(err, api.ErrNotRunning) {
				return fmt.Errorf("%w: start agentd, then run this command again", err)
			}
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "the device's key was replaced")
			}
			return err
		},
	}
	l.AddFlags(cmd, program)
	return of.addToCommand(cmd)
}
