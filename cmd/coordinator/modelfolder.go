package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/modelfile/export"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func modelCommand() *cobra.Command {
	var f modelFolderFlags
	parent := cli.GroupCommand("model", "List, compare, export and use models", &cobra.Command{
		Use: "list", Short: "List the models of a run", Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.listModels(cmd) },
	}, &cobra.Command{
		Use:   "show [VERSION|RUN/VERSION]",
		Short: "Show the tensors and metadata of a model (default: the current model of the newest run)",
		Args:  cli.ArgsCheckWithUsageError(cobra.MaximumNArgs(1)),
		RunE:  func(cmd *cobra.Command, args []string) error { return showModel(cmd, &f, args) },
	}, exportModelCommand(&f), diffModelsCommand(&f), newRunFromModelCommand(), rollBackModelCommand())
	addStateDirFlags(parent, &f.stateDir)
	parent.PersistentFlags().Uint64Var(&f.runNumber, "run", 0, "number of the run (default: the newest run)")
	return parent
}

// modelFolderFlags contains the flags that select a state folder and a run.
type modelFolderFlags struct {
	stateDir  string
	runNumber uint64 // number of the run; 0 means the newest run
}

// openModels opens the models of the run. present is the version of the run's current model, and known is false if no
// journal contains this version.
func (f *modelFolderFlags) openModels() (models *store.ModelFolder, run wire.RunID, present uint64, known bool,
	err error) {
	models, record, err := runs.OpenModelsOfCurrentRun(f.stateDir)
	if f.runNumber != 0 && (err != nil || record.Run != wire.RunID(f.runNumber)) {
		models, err = runs.OpenModelsOfRun(f.stateDir, wire.RunID(f.runNumber))
		return models, wire.RunID(f.runNumber), 0, false, err
	}
	return models, record.Run, uint64(record.Plan.BaseModelVersion), record.Plan.BaseModel.IsSet(), err
}

func (f *modelFolderFlags) listModels(cmd *cobra.Command) error {
	models, run, present, known, err := f.openModels()
	if err != nil {
		return err
	}
	list, err := models.List() // after an error, list still contains the intact models
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "VERSION\tBYTES\tHASH\tMODEL\tROUND\tMADE (UTC)\tRISK\tHELD-OUT RISK\n")
	rounds := f.historyEntryByVersion(run)
	for _, m := range list {
		note := ""
		if known && m.Version == present {
			note = "\tpresent"
		}
		made, round, e := "-", "-", rounds[m.Version]
		if e != nil {
			made, round = e.Time.UTC().Format(time.DateTime), strconv.FormatUint(uint64(e.Round), 10)
		} else {
			e = &runs.HistoryEntry{}
		}
		fmt.Fprintf(w, "%d\t%d\t%x\t%d/%d\t%s\t%s\t%s\t%s%s\n", m.Version, m.Size, m.Digest[:16], run, m.Version,
			round, made, formatOptionalNumber(e.MeanAgentRisk), formatOptionalNumber(e.HeldOutRisk), note)
	}
	if flushed := w.Flush(); err == nil {
		err = flushed
	}
	return err
}

// historyEntryByVersion maps each model version of a run to the history entry of the round that produced it.
func (f *modelFolderFlags) historyEntryByVersion(run wire.RunID) map[uint64]*runs.HistoryEntry {
	made := map[uint64]*runs.HistoryEntry{}
	for e, err := range runs.ReadHistory(f.stateDir) {
		if err == nil && e.Run == run && e.Evaluation == nil && e.Kind == wire.KindTraining.String() &&
			e.AbandonReason == "" {
			made[uint64(e.Version)] = &e
		}
	}
	return made
}

// formatOptionalNumber formats a measured number, or returns "-" if v is nil (not measured).
func formatOptionalNumber(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', 5, 64)
}

// openModel opens the model version named in args. Without args it opens the run's current model.
func (f *modelFolderFlags) openModel(args []string) (store.ModelInfo, []byte, error) {
	in := *f
	var info store.ModelInfo
	if len(args) > 0 {
		run, version, both := strings.Cut(args[0], "/")
		if !both {
			version = run
		}
		var err error
		if info.Version, err = strconv.ParseUint(version, 10, 64); err == nil && both {
			in.runNumber, err = strconv.ParseUint(run, 10, 64)
		}
		if err != nil {
			return info, nil,
				cli.UsageErrorf("unknown model %q: specify VERSION or RUN/VERSION, as printed by `model list`",
					args[0])
		}
	}
	models, _, present, known, err := in.openModels()
	if err != nil {
		return info, nil, err
	}
	switch {
	case len(args) > 0:
	case known:
		info.Version = present
	default:
		if info, err = models.Latest(); err != nil {
			return info, nil, err
		}
	}
	file, err := models.Get(info.Version)
	return info, file, err
}

func showModel(cmd *cobra.Command, f *modelFolderFlags, args []string) error {
	info, file, err := f.openModel(args)
	if err != nil {
		return err
	}
	tensors, meta, err := store.DecodeSafetensors(file)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "version\t%d\n", info.Version)
	for _, key := range []string{"task", "run", "hash", "kind", "risk", "activation", "target", "features",
		"mean", "scale", "clip", "from"} {
		if meta[key] != "" {
			fmt.Fprintf(w, "%s\t%s\n", key, meta[key])
		}
	}
	for _, t := range tensors {
		fmt.Fprintf(w, "tensor %s\t%s %v\n", t.Name, t.DType, t.Shape)
	}
	return w.Flush()
}

func exportModelCommand(f *modelFolderFlags) *cobra.Command {
	var out, format string
	extensions := map[string]string{"safetensors": "safetensors", string(export.FormatONNX): "onnx",
		string(export.FormatC): "h"}
	cmd := &cobra.Command{
		Use:   "export [VERSION|RUN/VERSION]",
		Short: "Export a model as safetensors, ONNX or C (default: the current model of the newest run)",
		Args:  cli.ArgsCheckWithUsageError(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, file, err := f.openModel(args)
			if err != nil {
				return err
			}
			extension, ok := extensions[format]
			if !ok {
				return cli.UsageErrorf("--format must be safetensors, onnx or c, but is %q", format)
			}
			if format != "safetensors" {
				m, err := modelfile.Decode(file)
				if err == nil {
					file, err = export.Encode(export.Format(format), m)
				}
				if err != nil {
					return fmt.Errorf("cannot write the model as %s: %w", format, err)
				}
			}
			if out == "-" {
				_, err := cmd.OutOrStdout().Write(file)
				return err
			}
			if out == "" {
				out = fmt.Sprintf("model-%d.%s", info.Version, extension)
			}
			if err := os.WriteFile(out, file, 0o666); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: version %d, %d bytes\n", out, info.Version, len(file))
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "",
		"output file; - for standard output (default: model-VERSION.safetensors, .onnx or .h)")
	cmd.Flags().StringVar(&format, "format", "safetensors", "output format: safetensors, onnx, or c (a C99 header)")
	return cmd
}
