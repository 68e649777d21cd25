package main

import (
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/store"
)

func modelCommand() *cobra.Command {
	var dir string
	parent := cli.Group("model", "List, show or export the models of the run", &cobra.Command{
		Use: "list", Short: "List the models on disk", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return listModels(cmd, dir) },
	}, &cobra.Command{
		Use: "show [VERSION]", Short: "Show a model's tensors and metadata; the newest unless named", Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return showModel(cmd, dir, args) },
	}, exportCommand(&dir))
	parent.PersistentFlags().StringVar(&dir, "state-dir", settings.DefaultCoordinator().StateDir, "the coordinator's state folder")
	return parent
}

func listModels(cmd *cobra.Command, dir string) error {
	models, record, err := coordinator.OpenModels(dir)
	if err != nil {
		return err
	}
	list, err := models.List() // the sound ones, whatever the error
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "VERSION\tBYTES\tHASH\n")
	for _, m := range list {
		note := ""
		if m.Version == uint64(record.Plan.Version) {
			note = "\tpresent"
		}
		fmt.Fprintf(w, "%d\t%d\t%x%s\n", m.Version, m.Size, m.Digest[:16], note)
	}
	if flushed := w.Flush(); err == nil {
		err = flushed
	}
	return err
}

// pick opens the model that the arguments name.
func pick(dir string, args []string) (store.ModelInfo, []byte, error) {
	models, _, err := coordinator.OpenModels(dir)
	if err != nil {
		return store.ModelInfo{}, nil, err
	}
	info, err := models.Latest()
	if len(args) > 0 {
		version, perr := strconv.ParseUint(args[0], 10, 64)
		if perr != nil {
			return info, nil, cli.Usage("%q is not a version: want a number, as `model list` shows it", args[0])
		}
		info.Version, err = version, nil
	}
	if err != nil {
		return info, nil, err
	}
	file, err := models.Get(info.Version)
	return info, file, err
}

func showModel(cmd *cobra.Command, dir string, args []string) error {
	info, file, err := pick(dir, args)
	if err != nil {
		return err
	}
	tensors, meta, err := store.DecodeSafetensors(file)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "version\t%d\n", info.Version)
	for _, key := range []string{"task", "risk", "activation", "target", "features", "mean", "scale", "clip"} {
		fmt.Fprintf(w, "%s\t%s\n", key, meta[key])
	}
	for _, t := range tensors {
		fmt.Fprintf(w, "tensor %s\t%s %v\n", t.Name, t.DType, t.Shape)
	}
	return w.Flush()
}

func exportCommand(dir *string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "export [VERSION]", Short: "Write a model as a safetensors file; the newest unless named", Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, file, err := pick(*dir, args)
			if err != nil {
				return err
			}
			if out == "-" {
				_, err := cmd.OutOrStdout().Write(file)
				return err
			}
			if out == "" {
				out = fmt.Sprintf("model-%d.safetensors", info.Version)
			}
			if err := os.WriteFile(out, file, 0o666); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: version %d, %d bytes\n", out, info.Version, len(file))
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write; - for standard output (default: model-VERSION.safetensors)")
	return cmd
}
