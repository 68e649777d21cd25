package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
)

// Command returns the "doctor" command of a program. load reads the configuration, and targets returns the daemons that
// the command examines.
func Command[S any](program string, load func(*cli.ConfigLoader) (S, error),
	targets func(S) ([]*Target, error)) *cobra.Command {
	var l cli.ConfigLoader
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the broker, the disk, the clock and the data, and suggest remedies",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Check the environment of ` + program + `: its state folder, the clock, the connection to the
broker, and the broker's access rules, message size limit, retained messages and
queues. For an agent, also check its data and the broker of its readings. Each
problem is shown with a remedy.
While ` + program + ` is running, checks that need its connection are skipped.
The exit status is 1 if a check fails.`,
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
				return fmt.Errorf("failed checks: %d", bad)
			}
			return nil
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one finding per line")
	return cmd
}

// Examine runs all checks and passes each finding to show. It returns the number of findings with the status Bad.
func (p *Target) Examine(ctx context.Context, show func(Finding)) (bad int) {
	r := &findingReporter{showFinding: show, federation: p.Federation}
	r.addGoodFinding("configuration", "valid")
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
			r.addFinding("broker", Skipped, "", "%s is running and uses the broker connection: stop the program to "+
				"run the remaining checks, or run `%[1]s status`", p.Program)
		case reached && elsewhere:
			r.addFinding("broker", Skipped, "", "the connection was not checked, because another %s is the leader "+
				"and uses it", p.Program)
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
		_ = lock.Unlock() // ignore the error: the process is about to exit
	}
	return r.badFindingCount
}
