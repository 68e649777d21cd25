package main

import (
	"encoding/json"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/agentd/datacheck"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/settings"
)

func dataCommand() *cobra.Command {
	var l cli.ConfigLoader
	var of federationFlag
	var file string
	var asJSON bool
	check := &cobra.Command{
		Use: "check", Short: "Check the device's data against the task, and show the line number of each error",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Check the device's data against the task: the CSV file, or the readings that agentd has stored.\n\n" +
			"The report shows each unusable value with its line and column, at most 20 per column and reason. It " +
			"counts sensor values that are stuck, that jump, or that are duplicates. It then describes each column " +
			"and the rows that the agent makes.\n\nThe task comes from --task FILE (the format of `coordinator task " +
			"apply` and `coordinator task show`), or else from the running agent, or else from the announcement at " +
			"the broker. The command is read-only, and agentd may be running. The exit status is 1 if the agent " +
			"would decline the task.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := dataSectionSettings(settings.DefaultAgent())
			if err := settings.Load(&s, program, l.Path, l.Overrides); err != nil {
				return err
			}
			m, err := of.namedFederation((*settings.Agent)(&s))
			if err != nil {
				return err
			}
			r, err := checkData(cmd, m, file)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			} else {
				err = r.Draw(cmd.OutOrStdout())
			}
			if err == nil && r.DeclineReason != "" {
				err = cli.SilentFailure()
			}
			return err
		},
	}
	l.AddFlags(check, program)
	of.addToCommand(check)
	check.Flags().StringVar(&file, "task", "", "file with the task (default: the task that the coordinator announces)")
	check.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cli.GroupCommand("data", "Check the device's data", check)
}

// checkData checks the data against the task in the named file. If file is empty, it uses the task that the coordinator
// announced.
func checkData(cmd *cobra.Command, s *settings.Agent, file string) (*datacheck.Result, error) {
	if file != "" {
		t, err := settings.ReadTask(file)
		if err != nil {
			return nil, err
		}
		return datacheck.Run(s, &datacheck.TaskWithOrigin{Task: t, Origin: file}, "")
	}
	agentd.UseConfiguredDNS(s, slog.New(slog.DiscardHandler))
	t, err := datacheck.FetchAnnouncedTask(cmd.Context(), s)
	if ended := cmd.Context().Err(); ended != nil {
		return nil, ended
	}
	if err != nil {
		return datacheck.Run(s, nil, err.Error())
	}
	return datacheck.Run(s, t, "")
}

// dataSectionSettings is settings.Agent with validation limited to the data section, because the user of the command
// may not have permission to read the key files.
type dataSectionSettings settings.Agent

// Validate returns an error that lists all problems in the data section.
func (s *dataSectionSettings) Validate() error { return (*settings.Agent)(s).ValidateDataSettings() }

// checkDataFileHeader checks whether the data file can be opened and has the configured columns.
func checkDataFileHeader(l *cli.ConfigLoader) error {
	s := dataFileSettings(settings.DefaultAgent())
	return settings.Load(&s, program, l.Path, l.Overrides)
}

// dataFileSettings is settings.Agent with validation limited to the data file.
type dataFileSettings settings.Agent

// Validate returns an error if configured columns are missing in the header of the data file.
func (s *dataFileSettings) Validate() error { return (*settings.Agent)(s).CheckDataFileHeaders() }
