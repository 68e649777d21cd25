package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/join"
	"github.com/fedmesh/fedmesh/internal/service"
	"github.com/fedmesh/fedmesh/packaging/systemd"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func joinCommand() *cobra.Command {
	var l cli.ConfigLoader
	var token, id string
	var noStart bool
	cmd := &cobra.Command{
		Use: "join URL", Short: "Join a federation with a token",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: `Join a federation with a token from the coordinator ("coordinator enrol").

The device generates its own keys, and they stay on the device. The token
authenticates the coordinator, so neither a certificate authority nor a correct clock
is required. The command writes the keys, a certificate for the broker and the root
document into the folder of the configuration. In the configuration it sets the keys
of the federation; all other keys are unchanged. Then it starts the service, if it is
installed. If the command is interrupted, run it again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := wire.ParseEnrolmentToken(token)
			if err != nil {
				return err
			}
			s := join.DeviceSetup{ConfigPath: l.Path, OwnerSettings: l.Overrides, Token: t, Agent: wire.AgentID(id),
				Disk: store.LocalDisk,
				RequestAdmission: func(ctx context.Context, t *wire.EnrolmentToken, id wire.AgentID,
					k *join.DeviceKeys) (*join.VerifiedAdmission,
					error) {
					return join.RequestAdmission(ctx, args[0], t, id, k)
				}}
			before, err := s.Join(cmd.Context())
			if err != nil {
				return err
			}
			return reportJoinAndStart(cmd, &l, &s, before, !noStart)
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().StringVar(&token, "token", "", "enrolment token, as printed by \"coordinator enrol\"")
	cmd.Flags().StringVar(&id, "id", "", "id of this device; required if the token is valid for any device")
	cmd.Flags().BoolVar(&noStart, "no-start", false, "do not start the agentd service after joining")
	_ = cmd.MarkFlagRequired("token")
	return cmd
}

// reportJoinAndStart prints the result of joining and the remaining steps. If start is true, it also starts the
// service.
func reportJoinAndStart(cmd *cobra.Command, l *cli.ConfigLoader, s *join.DeviceSetup, before, start bool) error {
	out := cmd.OutOrStdout()
	what := "has joined"
	if before {
		what = "has already joined with this token"
	}
	fmt.Fprintf(out, "%s %s: %s\n", s.Agent, what, l.Path)
	if len(s.SkippedSettings) > 0 {
		fmt.Fprintf(out, "Ignored these settings, which the coordinator sent and this program does not accept: %s\n",
			strings.Join(s.SkippedSettings, ", "))
	}
	l.Overrides = nil // the configuration file now contains the overrides from the command line
	if _, err := loadSettings(l); err != nil {
		fmt.Fprintf(out, "Set these keys in the configuration file, then start agentd:\n")
		for _, line := range config.ErrorLines(err) {
			fmt.Fprintf(out, "  %s\n", line)
		}
		return nil
	}
	unit, err := service.New(systemd.Agent())
	switch {
	case !start:
	case err == nil && l.Path == cli.DefaultConfigFile(program) && unit.IsInstalledOrPackaged():
		if err := unit.Restart(); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s is started\n", program)
		return err
	}
	_, err = fmt.Fprintf(out, "To start it: %s run --config %s\n", program, l.Path)
	return err
}
