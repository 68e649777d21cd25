package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
)

func taskCommand() *cobra.Command {
	return cli.GroupCommand("task", "Show or change the federation's training task, or pause the run",
		taskShowCommand(), taskDiffCommand(), taskApplyCommand(), taskSetCommand(),
		runControlCommand("pause", "Pause the run: start no rounds until `coordinator task resume`",
			"the run is paused", "the run pauses after the current round"),
		runControlCommand("resume", "Resume a paused or stopped run", "the run continues", "the run continues"),
		runControlCommand("stop", "End the run and keep its model", "the run has ended",
			"the run ends after the current round"), taskRunsCommand())
}

func taskRunsCommand() *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "runs", Short: "List the runs that have models, newest last",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "List the runs that have models, newest last. The table shows the number of models, the newest model " +
			"in the notation of `model show` and `--from`, the task, and the model from which the run began. The " +
			"coordinator does not need to run.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newAPIClient(&l)
			if err != nil {
				return err
			}
			runs, err := runs.ListStoredRuns(c.Dir)
			if err == nil && len(runs) == 0 {
				err = fmt.Errorf("state folder %s contains no models", c.Dir)
			}
			if err != nil {
				return err
			}
			return printRuns(cmd.OutOrStdout(), runs)
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

func printRuns(to io.Writer, runs []runs.RunInfo) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "RUN\tMODELS\tNEWEST\tTASK\tFROM\n")
	for _, r := range runs {
		if r.Models == 0 {
			fmt.Fprintf(w, "%d\t0\tnone\n", r.Run)
			continue
		}
		fmt.Fprintf(w, "%d\t%d\t%d/%d\t%s\t%s\n", r.Run, r.Models, r.Run, r.NewestVersion, r.TaskName, r.StartModel)
	}
	return w.Flush()
}

// newAPIClient returns a client for the API of the coordinator that the configuration describes.
func newAPIClient(l *cli.ConfigLoader) (api.Client, error) {
	s := settingsWithoutValidation(coordinatorsettings.Default())
	err := settings.Load(&s, program, l.Path, l.Overrides)
	return api.Client{Program: program, Dir: s.StateDir, Timeout: 30 * time.Second}, err
}

func taskShowCommand() *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "show", Short: "Show the applied task, for `task apply` and for `agentd data check --task FILE`",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Show the task that is in effect, with all its keys, as YAML. Before the first run, it is the task of " +
			"the configuration. On a device, `agentd data check --task FILE` checks the device's data against it, " +
			"without a broker. The command needs neither the keys nor a running coordinator.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, about, err := readAppliedTask(cmd.Context(), &l)
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "# %s\n%s", about, text)
			}
			return err
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

// readAppliedTask returns the current task from the running coordinator, the state folder or the configuration, in this
// order. about describes the source.
func readAppliedTask(ctx context.Context, l *cli.ConfigLoader) (text []byte, about string, err error) {
	c, err := newAPIClient(l)
	if err != nil {
		return nil, "", err
	}
	var t coordinatord.AppliedTask
	switch err := c.Call(ctx, http.MethodGet, "/v1/task", nil, &t); {
	case err == nil:
		return []byte(t.TaskYAML), fmt.Sprintf("The task in effect, version %d.", t.Version), nil
	case !errors.Is(err, api.ErrNotRunning):
		return nil, "", err
	}
	switch control, found, err := coordinator.LoadOperatorDecisions(c.Dir); {
	case err != nil:
		return nil, "", err
	case found:
		return control.Task.TaskYAML, fmt.Sprintf("The task in effect, version %d.", control.Task.Version), nil
	}
	s := taskOnlySettings(coordinatorsettings.Default())
	if err := settings.Load(&s, program, l.Path, l.Overrides); err != nil {
		return nil, "", err
	}
	a := (*coordinatorsettings.ConfigFile)(&s).AppliedSettings()
	return a.YAML(), "The task of the configuration file; no run has begun yet.", nil
}

// taskOnlySettings is the coordinator's configuration with validation limited to the task, because the user of the
// command may not have permission to read the key files.
type taskOnlySettings coordinatorsettings.ConfigFile

// Validate returns an error that lists all problems of the task.
func (s *taskOnlySettings) Validate() error {
	a := (*coordinatorsettings.ConfigFile)(s).AppliedSettings()
	return a.Validate()
}

func taskDiffCommand() *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "diff FILE", Short: "Show the changes that `task apply FILE` would make, and their effect on the run",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: "Compare a file with the applied task, key by key, and show whether the run can continue or a new run " +
			"is required. FILE is a coordinator.yaml or the output of `task show`; keys that it omits have their " +
			"defaults.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return applyTaskFile(cmd, &l, args, coordinatord.ApplyRequest{DryRun: true})
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

func taskApplyCommand() *cobra.Command {
	var l cli.ConfigLoader
	var a coordinatord.ApplyRequest
	cmd := &cobra.Command{
		Use: "apply [FILE]", Short: "Apply a task after the current round",
		Args: cli.ArgsCheckWithUsageError(cobra.MaximumNArgs(1)),
		Long: "Apply a task after the current round. FILE is a coordinator.yaml or the output of `task show`; keys " +
			"that it omits have their defaults. The command validates the task first. Without FILE, the command " +
			"begins a new run of the applied task.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !a.NewRun && a.InitialModel == "" {
				return cli.UsageErrorf("specify the FILE to apply, or begin a new run with --new-run or --from MODEL")
			}
			return applyTaskFile(cmd, &l, args, a)
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().BoolVar(&a.NewRun, "new-run", false, "begin a new run, from an initial model unless --from is given")
	cmd.Flags().StringVar(&a.InitialModel, "from", "",
		"begin a new run from a model: present (the current model), VERSION, RUN/VERSION, or a safetensors file that "+
			"the coordinator can read")
	cmd.Flags().BoolVar(&a.AbandonRound, "now", false, "do not wait for the end of the current round; abandon it")
	return cmd
}

// applyTaskFile applies the task in the file named by args, and prints the effect of the change.
func applyTaskFile(cmd *cobra.Command, l *cli.ConfigLoader, args []string, a coordinatord.ApplyRequest) error {
	set := extractTaskOverrides(l)
	c, err := newAPIClient(l)
	if err != nil {
		return err
	}
	if len(args) == 0 && len(set) > 0 {
		return cli.UsageErrorf("--set requires a FILE; to change the applied task, use `coordinator task set " +
			"KEY=VALUE`")
	}
	if len(args) > 0 {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		if len(set) > 0 {
			if text, err = coordinatorsettings.EditAppliedText(args[0], text, set); err != nil {
				return err
			}
		}
		a.TaskFileName, a.TaskYAML = args[0], string(text)
	}
	return sendApplyRequest(cmd, c, a)
}

// extractTaskOverrides removes the keys of the task from the --set flags and returns their values. These values
// override keys of the task instead of keys of the coordinator's configuration.
func extractTaskOverrides(l *cli.ConfigLoader) map[string]string {
	set := map[string]string{}
	for key, value := range l.Overrides {
		if coordinatorsettings.IsAppliedKey(key) {
			set[key] = value
			delete(l.Overrides, key)
		}
	}
	return set
}

func taskSetCommand() *cobra.Command {
	var l cli.ConfigLoader
	var a coordinatord.ApplyRequest
	cmd := &cobra.Command{
		Use: "set KEY=VALUE...", Short: "Change keys of the applied task after the current round",
		Args: cli.ArgsCheckWithUsageError(cobra.MinimumNArgs(1)),
		Long: "Change keys of the applied task, such as task.step_size.constant=0.05, and keep all others. The " +
			"command validates the task first; --check only shows the changes. `task show` lists the keys.",
		RunE: func(cmd *cobra.Command, args []string) error {
			set := map[string]string{}
			for _, arg := range args {
				key, value, ok := strings.Cut(arg, "=")
				if !ok || !coordinatorsettings.IsAppliedKey(key) {
					return cli.UsageErrorf("%q: specify KEY=VALUE, with a key in the section task, round, mesh or "+
						"predict",
						arg)
				}
				set[key] = value
			}
			text, _, err := readAppliedTask(cmd.Context(), &l)
			if err != nil {
				return err
			}
			if text, err = coordinatorsettings.EditAppliedText("the applied task", text, set); err != nil {
				return err
			}
			c, err := newAPIClient(&l)
			if err != nil {
				return err
			}
			a.TaskFileName, a.TaskYAML = "the applied task", string(text)
			return sendApplyRequest(cmd, c, a)
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().BoolVar(&a.DryRun, "check", false, "only show the changes")
	cmd.Flags().BoolVar(&a.AbandonRound, "now", false, "do not wait for the end of the current round; abandon it")
	return cmd
}

// sendApplyRequest asks the running coordinator to apply a task, and prints the result.
func sendApplyRequest(cmd *cobra.Command, c api.Client, a coordinatord.ApplyRequest) error {
	var o coordinatord.ApplyPreview
	if err := c.Call(cmd.Context(), http.MethodPost, "/v1/task", &a, &o); err != nil {
		return asConfigRefusal(err)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), applyPreviewText(&o, !a.DryRun))
	return err
}

// asConfigRefusal converts the API error for an invalid configuration to a configRefusal with the matching exit status.
func asConfigRefusal(err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.IsConfigInvalid {
		return &configRefusal{e.Problem}
	}
	return err
}

// configRefusal is the error that reports that the coordinator has rejected a configuration as invalid.
type configRefusal struct{ text string }

func (r *configRefusal) Error() string { return r.text }
func (r *configRefusal) Unwrap() error { return &config.Error{Problem: r.text} }

// applyPreviewText returns a description of the effects of applying a task.
func applyPreviewText(o *coordinatord.ApplyPreview, done bool) string {
	var b strings.Builder
	for _, c := range o.Changes {
		fmt.Fprintf(&b, "%s: %s -> %s (%s", c.Key, orNone(c.Before), orNone(c.After), effectText(c.Effect))
		if c.Consequence != "" {
			fmt.Fprintf(&b, "; %s", c.Consequence)
		}
		b.WriteString(")\n")
	}
	when := "now"
	if o.WaitsForRoundEnd {
		when = "after the current round"
	}
	switch {
	case o.MissingFlags != "":
		fmt.Fprintf(&b, "to apply this task, add %s\n", o.MissingFlags)
	case !o.NewRun && len(o.Changes) == 0:
		b.WriteString("this task does not differ from the applied task\n")
	case !done && o.NewRun:
		fmt.Fprintf(&b, "applying this task would begin a new run%s\n", initialModelText(o.InitialModel))
	case !done:
		b.WriteString("applying this task would not end the run: it would continue from its model\n")
	case o.NewRun:
		fmt.Fprintf(&b, "task version %d takes effect %s: a new run begins%s\n", o.Version, when,
			initialModelText(o.InitialModel))
	default:
		fmt.Fprintf(&b, "task version %d takes effect %s; the run continues from its model\n", o.Version, when)
	}
	return b.String()
}

func effectText(e coordinatorsettings.ChangeEffect) string {
	if e == coordinatorsettings.EffectNextRound {
		return "the run continues"
	}
	return string(e)
}

func orNone(value string) string {
	if value == "" || value == `""` {
		return "none"
	}
	return value
}

func initialModelText(model string) string {
	switch model {
	case "":
		return " from an initial model"
	case coordinator.StartFromCurrentModel:
		return " from the present model"
	}
	return " from model " + model
}

func runControlCommand(name, short, done, waits string) *cobra.Command {
	var l cli.ConfigLoader
	var s coordinatord.RunControlRequest
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newAPIClient(&l)
			if err != nil {
				return err
			}
			var t coordinatord.AppliedTask
			if err := c.Call(cmd.Context(), http.MethodPost, "/v1/task/"+name, &s, &t); err != nil {
				return err
			}
			said := done
			if t.Phase == "collecting" || t.Phase == "closing" {
				said = waits
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
	l.AddFlags(cmd, program)
	if name != "resume" {
		cmd.Flags().BoolVar(&s.AbandonRound, "now", false, "do not wait for the end of the current round; abandon it")
	}
	return cmd
}
