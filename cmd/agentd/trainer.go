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
		Short: "Test a program for external models against the trainer protocol",
		Args: func(_ *cobra.Command, args []string) error {
			if (of.SocketPath == "") == (len(args) == 0) {
				return cli.UsageErrorf("specify either the command that starts the program, or --socket with the " +
					"socket of a running program")
			}
			return nil
		},
		Long: "Test a program for external models against the trainer protocol, in the same way as agentd would use " +
			"it.\n\nThe test requests the program's description, local steps from the tensors of --initial, the same " +
			"local steps again, the other capabilities that the program declares, a stop, and the end of the " +
			"session. It prints one line per check, and the program's standard error. The exit status is 1 if a " +
			"check fails.",
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
	flags.StringVar(&of.SocketPath, "socket", "", "socket of a running program, instead of a command")
	flags.Float64Var(&of.StepSize, "step-size", 0.01, "step size (learning rate) of the local training steps")
	flags.StringVar(&device, "device", "check", "device id that the program receives")
	flags.StringVar(&of.Dir, "dir", "", "working directory of the program (default: the current one)")
	flags.StringArrayVar(&of.Env, "env", nil, "NAME=value in the program's environment; may be repeated")
	flags.DurationVar(&of.SilenceTimeout, "timeout", of.SilenceTimeout, "maximum time that the program may work "+
		"without sending a message")
	_ = check.MarkFlagRequired("initial") // ignore the error, which cannot occur because the flag exists
	return cli.GroupCommand("trainer", "Test programs that train external models", check)
}

// readFloat32Tensors returns names, shapes and values of the tensors in a file. All tensors must have the type float32.
func readFloat32Tensors(file []byte) (layout []learner.TensorSpec, values []float32, err error) {
	tensors, _, err := store.DecodeSafetensors(file)
	for _, t := range tensors {
		if t.DType != "F32" {
			return nil, nil, fmt.Errorf("tensor %q has the type %s; all tensors must have the type F32",
				t.Name, t.DType)
		}
		layout = append(layout, learner.TensorSpec{Name: t.Name, Shape: t.Shape})
		some := make([]float32, len(t.Data)/4)
		if err := wire.DecodeVector(some, t.Data); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		values = append(values, some...)
	}
	if err == nil && len(values) == 0 {
		err = errors.New("the model file contains no parameters")
	}
	return layout, values, err
}
