package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/coordinatord/history"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/wire"
)

// historyExportFlags contains the flags for the format and destination of an export.
type historyExportFlags struct {
	configLoader                  cli.ConfigLoader
	format, outputPath, mlflowURL string
	runNumber                     uint64
}

func historyCommand() *cobra.Command {
	var x historyExportFlags
	export := &cobra.Command{
		Use: "export", Short: "Export the history of rounds for other tools",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Export the history of rounds from the state folder, oldest first. The formats csv and json write to " +
			"standard output or a file, tensorboard writes event files into a folder (tensorboard --logdir FOLDER), " +
			"and mlflow sends the missing rounds to an MLflow server. The coordinator may be running. With " +
			"history.mlflow in its configuration, it logs each round to MLflow itself.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			u := settingsWithoutValidation(coordinatorsettings.Default())
			if err := settings.Load(&u, program, x.configLoader.Path, x.configLoader.Overrides); err != nil {
				return err
			}
			s := coordinatorsettings.ConfigFile(u)
			sink, to, done, err := x.openSink(cmd.Context(), cmd.OutOrStdout(), &s)
			if err != nil {
				return err
			}
			n, err := exportRounds(cmd, s.StateDir, x.runNumber, sink)
			if err = errors.Join(err, sink.Close(), done()); err == nil && to != "-" {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d rounds\n", to, n)
			}
			return err
		},
	}
	x.configLoader.AddFlags(export, program)
	f := export.Flags()
	f.StringVar(&x.format, "format", "csv", "output format: csv, json, tensorboard or mlflow")
	f.StringVarP(&x.outputPath, "out", "o", "-", "output file, or output folder with the format tensorboard; - for "+
		"standard output")
	f.StringVar(&x.mlflowURL, "url", "", "URL of the MLflow server (default: history.mlflow.url of the configuration)")
	f.Uint64Var(&x.runNumber, "run", 0, "export only the run with this number (default: all runs)")
	return cli.GroupCommand("history", "Export the history of rounds", export)
}

// openSink returns the sink that writes the chosen format, a description of the destination, and a function that closes
// the destination file.
func (x *historyExportFlags) openSink(ctx context.Context, w io.Writer,
	s *coordinatorsettings.ConfigFile) (sink history.Sink,
	to string,
	done func() error, err error) {
	done = func() error { return nil }
	switch x.format {
	case "csv", "json":
	case "tensorboard":
		if x.outputPath == "-" {
			return nil, "", nil, cli.UsageErrorf("--format tensorboard requires --out: set it to a folder for the " +
				"event files")
		}
		return history.NewTensorBoardSink(x.outputPath), x.outputPath, done, nil
	case "mlflow":
		m := &s.History.MLflow
		if m.URL = cmp.Or(x.mlflowURL, m.URL); m.URL == "" {
			return nil, "", nil, cli.UsageErrorf("--format mlflow requires the URL of the MLflow server: set --url, " +
				"or history.mlflow.url in the configuration")
		}
		t, err := s.MLflowTracking(daemon.Version())
		if err != nil {
			return nil, "", nil, err
		}
		return history.NewMLflow(ctx, t), m.URL, done, nil
	default:
		return nil, "", nil, cli.UsageErrorf("--format must be csv, json, tensorboard or mlflow, but is %q", x.format)
	}
	if x.outputPath != "-" {
		f, err := os.Create(x.outputPath)
		if err != nil {
			return nil, "", nil, err
		}
		w, done = f, f.Close
	}
	if x.format == "json" {
		return history.NewJSONSink(w), x.outputPath, done, nil
	}
	sink, err = history.NewCSVSink(w)
	return sink, x.outputPath, done, err
}

// exportRounds writes the rounds of a run to sink, or the rounds of all runs if run is 0. It reports damaged lines and
// skips them.
func exportRounds(cmd *cobra.Command, dir string, run uint64, sink history.Sink) (n int, err error) {
	for e, err := range runs.ReadHistory(dir) {
		var gone *os.PathError
		switch {
		case errors.As(err, &gone):
			return n, err
		case err != nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "skipped: %v\n", err)
		case run == 0 || e.Run == wire.RunID(run):
			if err := sink.WriteRound(&e); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}
