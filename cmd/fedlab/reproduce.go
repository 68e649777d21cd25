package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/reproduce"
)

func reproduceCommand() *cobra.Command {
	r := reproduction{}
	var settings []string
	cmd := &cobra.Command{
		Use: "reproduce [ID...]", Short: "Reproduce published experiments with the code of agentd and coordinator",
		Long: `Run published experiments with the daemons' code: all experiments of the first list, or only
the given ones. The output of each experiment contains its claim, the measured values
with a 95 % interval, the theory's prediction, and whether the claim holds. The exit
status is 1 if a claim does not hold. docs/EXPERIMENTS.md describes the experiments.
They are:

` + experimentListText(),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := reproduce.Select(args)
			if err != nil {
				return cli.UsageErrorf("%w", err)
			}
			if err := setExperimentKeys(chosen, settings); err != nil {
				return cli.UsageErrorf("%w", err)
			}
			r.stdout = cmd.OutOrStdout()
			if f, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
				r.terminal = f
			}
			return r.run(cmd.Context(), chosen)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.out, "out", "", "folder for report.html, report.json and the plots as SVG")
	f.BoolVar(&r.json, "json", false, "print JSON, one object per experiment")
	f.StringArrayVar(&settings, "set", nil,
		"change a parameter of an experiment (ID.KEY=VALUE), such as msd.step_size=0.01 or 'spectrum.nodes=[10,30]'; "+
			"may be repeated")
	f.BoolVar(&r.options.Quick, "quick", false, "use fewer runs and wider confidence intervals, which takes one "+
		"minute instead of five")
	f.Uint64Var(&r.options.Seed, "seed", 1,
		"seed of all random numbers; the same seed gives the same values with any number of cores")
	return cmd
}

func setExperimentKeys(chosen []reproduce.Experiment, settings []string) error {
	for _, text := range settings {
		path, value, ok := strings.Cut(text, "=")
		id, key, dotted := strings.Cut(path, ".")
		if !ok || !dotted {
			return fmt.Errorf("--set %s must have the form ID.KEY=VALUE", text)
		}
		i := slices.IndexFunc(chosen, func(e reproduce.Experiment) bool { return e.About().ID == id })
		if i < 0 {
			return fmt.Errorf("--set %s refers to the experiment %q, which is not selected", text, id)
		}
		if err := reproduce.Set(chosen[i], key, value); err != nil {
			return fmt.Errorf("--set %s: %w", text, err)
		}
	}
	return nil
}

// experimentListText returns a list of all experiments with the claims that they test.
func experimentListText() string {
	var b strings.Builder
	for _, e := range reproduce.All() {
		fmt.Fprintf(&b, "  %-16s %s\n", e.About().ID, e.About().Claim)
	}
	b.WriteString("\nexperiments on data that are not part of the project, which run only if selected:\n\n")
	for _, e := range reproduce.ExternalDataExperiments() {
		fmt.Fprintf(&b, "  %-16s %s\n", e.About().ID, e.About().Claim)
	}
	return b.String()
}

// reproduction is one invocation of the command that reproduces experiments.
type reproduction struct {
	out      string // folder for output files; empty means no files
	json     bool
	options  reproduce.Options
	stdout   io.Writer
	terminal io.Writer // output for progress messages; nil without a terminal
}

// run runs the experiments one after the other, each on all CPU cores. The returned error lists the experiments whose
// claims do not hold.
func (r *reproduction) run(ctx context.Context, experiments []reproduce.Experiment) error {
	if r.out != "" {
		if err := os.MkdirAll(r.out, 0o777); err != nil { // fail before the experiments instead of after them
			return fmt.Errorf("--out: %w", err)
		}
	}
	outcomes, err := r.measure(ctx, experiments)
	if r.out != "" && (err == nil || len(outcomes) > 0) {
		o := r.options
		o.Missing = len(experiments) - len(outcomes)
		if err := reproduce.WriteFiles(r.out, o, outcomes); err != nil {
			return err
		}
		if !r.json {
			fmt.Fprintf(r.stdout, "\nwrote the report to %s; report.json and the plots are in the same folder\n",
				filepath.Join(r.out, "report.html"))
		}
	}
	if err != nil {
		return err
	}
	var failed, reasons []string
	for _, o := range outcomes {
		if !o.Holds {
			failed, reasons = append(failed, o.ID), append(reasons, r.failureReasons(o.Report)...)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d published claims were not reproduced: %s%s", len(failed), len(outcomes),
			strings.Join(failed, ", "),
			strings.Join(reasons, ""))
	}
	return nil
}

// measure runs the experiments and prints the outcome of each. If the context ends, it returns the outcomes of the
// completed experiments.
func (r *reproduction) measure(ctx context.Context, experiments []reproduce.Experiment) (all []reproduce.Outcome,
	_ error) {
	for i, e := range experiments {
		stop := r.showProgress(fmt.Sprintf("[%d/%d] %s", i+1, len(experiments), e.About().ID))
		began := time.Now()
		report, err := e.Run(ctx, r.options)
		seconds := time.Since(began).Seconds()
		stop()
		if err != nil && ctx.Err() != nil {
			return all, fmt.Errorf("interrupted: %d of %d experiments completed", len(all),
				len(experiments))
		}
		if err != nil {
			report = reproduce.Failed(e, err)
		}
		outcome := reproduce.Outcome{Report: report, Seconds: seconds, Settings: e}
		all = append(all, outcome)
		if err := r.print(outcome); err != nil {
			return all, err
		}
	}
	return all, nil
}

// failureReasons returns the reasons why a claim of an experiment does not hold. They are printed in addition to JSON
// output, which contains only the measured values.
func (r *reproduction) failureReasons(report *reproduce.Report) (lines []string) {
	for _, f := range report.Findings {
		if r.json && !f.Holds {
			lines = append(lines, fmt.Sprintf("\n  %s: %s: %s; expected %s", report.ID, f.What, f.Measured, f.Expected))
		}
	}
	return lines
}

// print writes the outcome of an experiment as a line of JSON, or as text with all comparisons.
func (r *reproduction) print(o reproduce.Outcome) error {
	if r.json {
		return json.NewEncoder(r.stdout).Encode(struct {
			ID      string           `json:"id"`
			Holds   bool             `json:"holds"`
			Seconds float64          `json:"seconds"`
			Values  reproduce.Values `json:"values"`
		}{o.ID, o.Holds, o.Seconds, o.Values})
	}
	verdict := map[bool]string{true: "holds", false: "DOES NOT HOLD"}
	_, err := fmt.Fprintf(r.stdout, "\n%s  %s (%.1f s)\n  %s\n  %s\n", o.ID, verdict[o.Holds], o.Seconds, o.Claim,
		o.Source)
	for _, f := range o.Findings {
		mark := map[bool]string{true: "+", false: "FAILS"}[f.Holds]
		_, err = fmt.Fprintf(r.stdout, "  %s %s: %s; expected %s\n", mark, f.What, f.Measured, f.Expected)
	}
	return err
}

// showProgress shows the running experiment and its duration on the terminal until stop is called.
func (r *reproduction) showProgress(what string) (stop func()) {
	if r.terminal == nil {
		return func() {}
	}
	ended, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for began := time.Now(); ; {
			fmt.Fprintf(r.terminal, "\r%s, %.0f s\x1b[K", what, time.Since(began).Seconds())
			select {
			case <-ended:
				fmt.Fprint(r.terminal, "\r\x1b[K")
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(ended); <-gone }
}
