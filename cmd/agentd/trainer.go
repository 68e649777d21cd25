package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func trainerCommand() *cobra.Command {
	of := external.ProtocolTest{Config: external.Config{SilenceTimeout: 10 * time.Minute, AllowsNetwork: true}}
	var initial, device string
	check := &cobra.Command{
		Use:   "check --initial FILE (--socket PATH | -- COMMAND [ARGUMENT...])",
		Short: "Play the trainers' protocol with a program",
		Args: func(_ *cobra.Command, args []string) error {
			if (of.SocketPath == "") == (len(args) == 0) {
				return cli.UsageErrorf("want a command, or --socket of a program that runs by itself")
			}
			return nil
		},
		Long: "Play the trainers' protocol with a program, as agentd would: what it says of itself, local steps from " +
			"the tensors of --initial, the same ones again, what else it says that it can, stop, and its end. Each " +
			"line says what it has shown, or what is wrong. The exit status is 1 if anything is. What the program " +
			"writes to its standard error is shown.",
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := store.LocalDisk.ReadFile(initial)
			if err != nil {
				return err
			}
			layout, base, err := readFloat32Tensors(file)
			if err != nil {
				return fmt.Errorf("%s: %w", initial, err)
			}
			of.Command, of.Device, of.Layout, of.Base = args, wire.AgentID(device), layout, base
			of.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			of.OnFinding = func(f external.ProtocolTestFinding) {
				text := "ok     " + f.Summary
				if f.Problem != nil {
					text = "WRONG  " + f.Problem.Error()
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", f.ProtocolPart, text)
			}
			if !of.RunTest(cmd.Context()) {
				return cli.SilentFailure()
			}
			return nil
		},
	}
	flags := check.Flags()
	flags.StringVar(&initial, "initial", "", "safetensors file with the model, as in task.model.initial")
	flags.StringVar(&of.SocketPath, "socket", "", "of a program that runs by itself, in the place of a command")
	flags.Float64Var(&of.StepSize, "step-size", 0.01, "the step size of its steps")
	flags.StringVar(&device, "device", "check", "the device that the program is told")
	flags.StringVar(&of.Dir, "dir", "", "where the program runs (default: here)")
	flags.StringArrayVar(&of.Env, "env", nil, "NAME=value in its environment; may be given again")
	flags.DurationVar(&of.SilenceTimeout, "timeout", of.SilenceTimeout, "the longest silence while it works")
	_ = check.MarkFlagRequired("initial") // cannot fail: the flag exists
	return cli.GroupCommand("trainer", "Try programs that train external models", check)
}

// readFloat32Tensors returns the layout and the values of a file's tensors. All tensors must be float32.
func readFloat32Tensors(file []byte) (layout []learner.TensorSpec, values []float32, err error) {
	tensors, _, err := store.DecodeSafetensors(file)
	for _, t := range tensors {
		if t.DType != "F32" {
			return nil, nil, fmt.Errorf("tensor %q is %s; want F32 of all", t.Name, t.DType)
		}
		layout = append(layout, learner.TensorSpec{Name: t.Name, Shape: t.Shape})
		some := make([]float32, len(t.Data)/4)
		if err := wire.DecodeVector(some, t.Data); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		values = append(values, some...)
	}
	if err == nil && len(values) == 0 {
		err = errors.New("there are no parameters")
	}
	return layout, values, err
}
