package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/history"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/wire"
)

func historyCommand() *cobra.Command {
	var dir, format, out string
	var run uint64
	export := &cobra.Command{
		Use: "export", Short: "Write the rounds for other tools", Args: cli.Args(cobra.NoArgs),
		Long: "Write the rounds of the state folder, the oldest first: as CSV or JSON to standard output or a file, " +
			"or as TensorBoard's event files into a folder (tensorboard --logdir FOLDER). The coordinator may be " +
			"running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sink, done, err := sinkOf(cmd.OutOrStdout(), format, out)
			if err != nil {
				return err
			}
			n, err := exportRounds(cmd, dir, run, sink)
			if err = errors.Join(err, sink.Close(), done()); err == nil && out != "-" {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d rounds\n", out, n)
			}
			return err
		},
	}
	f := export.Flags()
	f.StringVar(&dir, "state-dir", settings.DefaultCoordinator().StateDir, "the coordinator's state folder")
	f.StringVar(&format, "format", "csv", "csv, json or tensorboard")
	f.StringVarP(&out, "out", "o", "-", "file or, for tensorboard, folder to write; - for standard output")
	f.Uint64Var(&run, "run", 0, "number of the run (default: all)")
	return cli.Group("history", "Write the history for other tools", export)
}

// sinkOf returns what writes the format, and what closes its file.
func sinkOf(w io.Writer, format, out string) (sink history.Sink, done func() error, err error) {
	done = func() error { return nil }
	switch format {
	case "csv", "json":
	case "tensorboard":
		if out == "-" {
			return nil, nil, cli.Usage("name the folder for TensorBoard's files with --out")
		}
		return history.TensorBoard(out), done, nil
	default:
		return nil, nil, cli.Usage("--format is csv, json or tensorboard, not %q", format)
	}
	if out != "-" {
		f, err := os.Create(out)
		if err != nil {
			return nil, nil, err
		}
		w, done = f, f.Close
	}
	if format == "json" {
		return history.JSON(w), done, nil
	}
	sink, err = history.CSV(w)
	return sink, done, err
}

// exportRounds writes the rounds of a run, or of all. A damaged line is told and left out.
func exportRounds(cmd *cobra.Command, dir string, run uint64, sink history.Sink) (n int, err error) {
	for e, err := range coordinator.History(dir) {
		var gone *os.PathError
		switch {
		case errors.As(err, &gone):
			return n, err
		case err != nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "left out: %v\n", err)
		case run == 0 || e.Run == wire.RunID(run):
			if err := sink.Round(&e); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}
