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

// rotatePatience is the time limit for the running agent's reply.
const rotatePatience = 30 * time.Second

func rotateKeyCommand() *cobra.Command {
	var of federationFlag
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "rotate", Short: "Have the running agent make itself another key, which the coordinator takes",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Have the running agent make itself another key, which the coordinator takes.

The key is made on this device and stays there. The one before signs the request,
and is heard no more from then on. With it the device gets another certificate for
the broker, if the coordinator has made the present one. Both are kept in the
state folder; the files that the configuration names stay as they are, so keep the
state folder from now on. If the coordinator does not answer, the agent asks again
by itself, also after a restart.`,
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
				return fmt.Errorf("%w: start agentd, and then run this again", err)
			}
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "this device has another key from now on")
			}
			return err
		},
	}
	l.AddFlags(cmd, program)
	return of.addToCommand(cmd)
}
