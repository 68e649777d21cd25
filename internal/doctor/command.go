package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
)

// Command returns a program's command "doctor". load reads the configuration, and targets returns the targets of the
// examination.
func Command[S any](program string, load func(*cli.ConfigLoader) (S, error),
	targets func(S) ([]*Target, error)) *cobra.Command {
	var l cli.ConfigLoader
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Examine the broker, the disk, the clock and the data, and say what to change",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Examine what ` + program + ` depends on: its folder, the clock, the way to the broker, and the
broker's access rules, largest messages, retained messages and queues; of an agent also
its data, and the broker that they come from. Each finding says what to change.
While ` + program + ` runs, the checks that need its connection are skipped.
The exit status is 1 when something is bad.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := load(&l)
			if err != nil {
				return err
			}
			all, err := targets(settings)
			if err != nil {
				return err
			}
			show := newTextFindingPrinter(cmd.OutOrStdout())
			if asJSON {
				show = newJSONFindingPrinter(cmd.OutOrStdout())
			}
			bad := 0
			for _, p := range all {
				bad += p.Examine(cmd.Context(), show)
			}
			if bad > 0 {
				return fmt.Errorf("findings that are bad: %d", bad)
			}
			return nil
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one finding per line")
	return cmd
}

// Examine runs all checks, shows each finding, and returns the number of bad ones.
func (p *Target) Examine(ctx context.Context, show func(Finding)) (bad int) {
	r := &findingReporter{showFinding: show, federation: p.Federation}
	r.addGoodFinding("configuration", "can be used")
	lock, runs := p.checkStateFolder(r)
	checkClock(r, time.Now())
	checkCertificateExpiry(r, p.Broker.Options.TLS, time.Now())
	elsewhere := false
	if p.CheckCluster != nil {
		var found []Finding
		found, elsewhere = p.CheckCluster(ctx)
		for _, f := range found {
			r.addFinding(f.Subject, f.State, f.Remedy, "%s", f.Observation)
		}
	}
	nodes := p.Broker.targetPerURL()
	for _, node := range nodes {
		if len(nodes) > 1 {
			r.observationPrefix = node.Options.URL + ": "
		}
		reached := node.checkTCPConnection(ctx, r)
		switch {
		case reached && runs:
			r.addFinding("broker", Skipped, "", "%s runs and uses the connection: stop it to examine the rest, or see "+
				"`%[1]s status`", p.Program)
		case reached && elsewhere:
			r.addFinding("broker", Skipped, "", "another %s leads, and has the connection", p.Program)
		case reached && node.checkMQTTSession(ctx, r):
			node.checkQueueLength(ctx, r)
		}
		if reached && p.FindAnnouncement != nil {
			f := p.FindAnnouncement(ctx, node.Options.URL)
			r.addFinding(f.Subject, f.State, f.Remedy, "%s", f.Observation)
		}
	}
	r.observationPrefix = ""
	if p.SiteBroker != nil {
		p.checkSiteBroker(ctx, r)
	}
	if p.CheckData != nil {
		for _, f := range p.CheckData(ctx) {
			r.addFinding(f.Subject, f.State, f.Remedy, "%s", f.Observation)
		}
	}
	if lock != nil {
		_ = lock.Unlock() // the process is about to end
	}
	return r.badFindingCount
}
