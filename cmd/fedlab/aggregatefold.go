package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/fold"
	"github.com/fedmesh/fedmesh/round/rule"
)

func aggregateUpdatesCommand() *cobra.Command {
	o := fold.Options{Rule: rule.DefaultConfig()}
	cmd := &cobra.Command{
		Use: "fold", Short: "Aggregate updates from a file with a coordinator's aggregation rules",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Aggregate the updates of a file in float64, by the rules and limits of a coordinator's
round, and print which updates were left out and why. docs/SIMULATION.md describes the
file format. The exit status is 1 if a round would be abandoned.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Updates == "" {
				return cli.UsageErrorf("--updates is required: specify a JSON file with the updates")
			}
			if err := o.Rule.Validate(); err != nil {
				return cli.UsageErrorf("%w", err)
			}
			o.Stdout = cmd.OutOrStdout()
			return fold.Run(o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Updates, "updates", "", "JSON file with the updates")
	f.StringVar(&o.Rule.Rule, "rule", o.Rule.Rule, strings.Join(rule.Names(), ", "))
	f.Float64Var(&o.Rule.TrimShare, "trim", o.Rule.TrimShare,
		"for trimmed_mean: fraction of the values that is removed at each end")
	f.IntVar(&o.Rule.MaxByzantineUpdates, "byzantine", 0,
		"for krum and multi_krum: number of Byzantine updates that the rule tolerates (f)")
	f.IntVar(&o.Rule.AveragedUpdates, "keep", 0, "for multi_krum: number of updates that the rule averages")
	f.Float64Var(&o.Rule.ClippingRadius, "radius", 0,
		"for centered_clipping: maximum distance of an update from the last aggregate")
	f.Float64Var(&o.Rule.ClipNorm, "clip", 0, "scale updates with a greater norm down to this norm (0 = no limit)")
	f.Float64Var(&o.Rule.ClipAboveFactor, "clip-above", 0,
		"for mean: scale updates with a greater norm down to this multiple of the median norm (0 = no limit)")
	f.Float64Var(&o.Rule.RefuseAboveFactor, "refuse-above", 0,
		"exclude updates whose norm exceeds this multiple of the median norm, if there are at least 5 updates (0 = "+
			"no limit)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the run; determines the order of summation, and thus the rounding of "+
		"the result")
	f.BoolVar(&o.JSON, "json", false, "print JSON")
	return cmd
}
