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
		Use: "fold", Short: "Fold updates from a file, by the rules of a coordinator",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Make the aggregate of updates in a file, in float64, by the rules and the bounds of a
coordinator's round, and say what was left out and why. docs/SIMULATION.md has the
form of the file. Where a round would be abandoned the exit status is 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Updates == "" {
				return cli.UsageErrorf("--updates is missing: give a file")
			}
			if err := o.Rule.Validate(); err != nil {
				return cli.UsageErrorf("%w", err)
			}
			o.Stdout = cmd.OutOrStdout()
			return fold.Run(o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Updates, "updates", "", "file of the updates, in JSON")
	f.StringVar(&o.Rule.Rule, "rule", o.Rule.Rule, strings.Join(rule.Names(), ", "))
	f.Float64Var(&o.Rule.TrimShare, "trim", o.Rule.TrimShare,
		"of trimmed_mean: share of the values that are cut at each end")
	f.IntVar(&o.Rule.MaxByzantineUpdates, "byzantine", 0,
		"of krum and multi_krum: number of Byzantine updates that it tolerates (f)")
	f.IntVar(&o.Rule.AveragedUpdates, "keep", 0, "of multi_krum: how many updates it averages")
	f.Float64Var(&o.Rule.ClippingRadius, "radius", 0,
		"of centered_clipping: how far an update counts from the last aggregate")
	f.Float64Var(&o.Rule.ClipNorm, "clip", 0, "scale updates of a greater norm down to it (0 = none)")
	f.Float64Var(&o.Rule.ClipAboveFactor, "clip-above", 0,
		"of the mean: scale updates down to this many times the median norm (0 = none)")
	f.Float64Var(&o.Rule.RefuseAboveFactor, "refuse-above", 0,
		"leave out updates of more than this many times the median norm, where there are 5 or more (0 = none)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the run: it decides the order of the sum, and so its last bits")
	f.BoolVar(&o.JSON, "json", false, "print JSON")
	return cmd
}
