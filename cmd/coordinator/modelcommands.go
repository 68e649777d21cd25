package main

import (
	"fmt"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

func newRunFromModelCommand() *cobra.Command {
	var l cli.ConfigLoader
	a := coordinatord.ApplyRequest{NewRun: true}
	cmd := &cobra.Command{
		Use: "use MODEL", Short: "Begin a new run of the applied task from a model",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: "Begin a new run of the applied task from a model: VERSION of the newest run, RUN/VERSION, or a " +
			"safetensors file that the coordinator can read. The models of the previous run are kept.",
		RunE: func(cmd *cobra.Command, args []string) error {
			a.InitialModel = args[0]
			return applyTaskFile(cmd, &l, nil, a)
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().BoolVar(&a.AbandonRound, "now", false, "do not wait for the end of the current round; abandon it")
	return cmd
}

func rollBackModelCommand() *cobra.Command {
	var l cli.ConfigLoader
	var to uint64
	a := coordinatord.ApplyRequest{NewRun: true, AbandonRound: true}
	cmd := &cobra.Command{
		Use: "rollback", Short: "Begin a new run from an earlier model of the current run",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Begin a new run of the applied task from an earlier model of the current run, by default the model " +
			"before the current one. The current round is abandoned.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newAPIClient(&l)
			if err != nil {
				return err
			}
			var t coordinatord.AppliedTask
			switch err := c.Call(cmd.Context(), http.MethodGet, "/v1/task", nil, &t); {
			case err != nil:
				return err
			case cmd.Flags().Changed("to"):
			case t.ModelVersion == nil:
				return fmt.Errorf("run %d has no model yet, so there is none to return to", t.Run)
			case *t.ModelVersion == 0:
				return fmt.Errorf("the current model is the first model of run %d: select a model of another run "+
					"with `coordinator model use RUN/VERSION`", t.Run)
			default:
				to = *t.ModelVersion - 1
			}
			a.InitialModel = wire.ModelRef{Run: wire.RunID(t.Run), Version: wire.ModelVersion(to)}.String()
			return applyTaskFile(cmd, &l, nil, a)
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().Uint64Var(&to, "to", 0, "version to return to (default: the model before the current one)")
	return cmd
}

func diffModelsCommand(f *modelFolderFlags) *cobra.Command {
	return &cobra.Command{
		Use: "diff MODEL [MODEL]", Short: "Compare two models, tensor by tensor; a single MODEL is compared with the " +
			"current model",
		Args: cli.ArgsCheckWithUsageError(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, before, err := f.openModel(args[:1])
			if err != nil {
				return err
			}
			_, after, err := f.openModel(args[1:])
			if err != nil {
				return err
			}
			return diffModels(cmd, before, after)
		},
	}
}

// diffModels compares two models a and b. For each tensor it prints the norm of the change ‖b − a‖₂, the largest change
// of a coordinate, and the norm ‖a‖₂. It then prints the metadata that differ.
func diffModels(cmd *cobra.Command, before, after []byte) error {
	c, err := modelfile.Compare(before, after)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "TENSOR\tSHAPE\tCHANGE\tLARGEST\tNORM BEFORE\n")
	for _, t := range c.Tensors {
		if t.Mismatch != "" {
			fmt.Fprintf(w, "%s\t%v\t%s\n", t.Name, t.Shape, t.Mismatch)
			continue
		}
		fmt.Fprintf(w, "%s\t%v\t%.4g\t%.4g\t%.4g\n", t.Name, t.Shape, t.Change, t.Largest, t.NormBefore)
	}
	for _, m := range c.Metadata {
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.Key, truncateText(m.Before), truncateText(m.After))
	}
	return w.Flush()
}

// truncateText shortens a metadata value to fit into a line.
func truncateText(value string) string {
	const most = 60
	switch runes := []rune(value); {
	case value == "":
		return "none"
	case len(runes) > most:
		return string(runes[:most]) + "…"
	}
	return value
}
