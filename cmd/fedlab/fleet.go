package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/agentd/agentconfig"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/lab/launch/daemons"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/store"
)

// memberProgram is the name of the program whose configuration and metrics the agents in a fleet use.
const memberProgram = "agentd"

// fleet runs many agents in one process, for use in a testbed.
type fleet struct {
	agents                           int
	dataShares                       int
	slow                             slowAgentsFlag
	lyingAgents                      lyingAgentsFlag
	dropProbability, lateProbability float64
	seed                             uint64
	keyListPath                      string
}

func fleetCommand() *cobra.Command {
	var l cli.ConfigLoader
	var f fleet
	cmd := &cobra.Command{
		Use: "fleet", Short: "Run many agents in one process, for testbeds",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Run many agents in one process. The configuration is for one agent: its id becomes
ID-0, ID-1 and so on, their keys are derived from its key file, and its rows are
distributed over the agents one by one.

  fedlab fleet --agents 50 --config FILE --write-keys agents.keys
  fedlab fleet --agents 50 --config FILE --slow 0.3:10 --drop 0.1 --late 0.1 --lie 0.02:nan

The first command only writes the list of public keys for the coordinator
(identity.agents_file). The second command runs the agents. The agents share their
metrics, so they do not report metrics to the coordinator.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			s := settings.DefaultAgent()
			if err := settings.Load(&s, memberProgram, l.Path, l.Overrides); err != nil {
				return err
			}
			return f.run(cmd, &s)
		},
	}
	l.AddFlags(cmd, memberProgram)
	cmd.Flags().IntVar(&f.agents, "agents", 10, "number of agents")
	cmd.Flags().IntVar(&f.dataShares, "shares", 0,
		"number of parts into which the rows are divided; several agents may use the same part (default: one part "+
			"for each agent)")
	cmd.Flags().Var(&f.slow, "slow",
		"make agents slow: with 0.3:10, the local steps of three of ten agents take ten times as long as "+
			"compute.step_time (or 1ms)")
	cmd.Flags().Var(&f.lyingAgents, "lie",
		"make agents send false updates: with 0.1:nan, one of ten agents sends updates of NaN; the kinds of false "+
			"updates are "+strings.Join(liar.Names(), ", "))
	cmd.Flags().Float64Var(&f.dropProbability, "drop", 0, "probability that a selected agent disconnects during the "+
		"round")
	cmd.Flags().Float64Var(&f.lateProbability, "late", 0, "probability that a selected agent sends its update after "+
		"the deadline")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the random selection of slow, lying, disconnecting and late "+
		"agents")
	cmd.Flags().StringVar(&f.keyListPath, "write-keys", "",
		"write the public keys of the agents, as a list for the coordinator, to this file and exit")
	return cmd
}

// check returns an error if a flag is out of range.
func (f *fleet) check() error {
	switch {
	case f.agents < 1:
		return cli.UsageErrorf("--agents must be at least 1, but is %d", f.agents)
	case f.dataShares < 0:
		return cli.UsageErrorf("--shares must be at least 1, or 0 for one part per agent, but is %d", f.dataShares)
	case !(f.dropProbability >= 0 && f.dropProbability <= 1):
		return cli.UsageErrorf("--drop must be a probability from 0 to 1, but is %v", f.dropProbability)
	case !(f.lateProbability >= 0 && f.lateProbability <= 1):
		return cli.UsageErrorf("--late must be a probability from 0 to 1, but is %v", f.lateProbability)
	}
	return nil
}

// run runs the fleet, or only writes the list of the agents' public keys.
func (f *fleet) run(cmd *cobra.Command, s *settings.Agent) error {
	master, err := keys.ReadSigningKey(s.Identity.KeyFile)
	if err != nil {
		return err
	}
	if f.keyListPath != "" {
		return f.listKeys(s, master)
	}
	log, err := daemon.NewLogger(cmd.ErrOrStderr(), s.Log, nil, nil)
	if err != nil {
		return err
	}
	defer daemon.LogShutdown(cmd.Context(), log)()
	topics, err := mqtt.NewTopics(s.Broker.Prefix, s.Federation)
	if err != nil {
		return fmt.Errorf("broker.prefix: %w", err)
	}
	agentd.UseConfiguredDNS(s, log)
	reg := metrics.NewRegistry(memberProgram)
	m := agentd.NewMetrics(reg, "")
	if _, err := daemon.ServeMetrics(cmd.Context(), s.Metrics.Listen, metrics.Handler(reg, daemon.AlwaysReady),
		log); err != nil {
		return err
	}
	g := launch.NewGroup(cmd.Context())
	defer g.Stop()
	for i, one := range f.members(s) {
		faults := f.newFaultInjector(i, topics)
		daemons.RunAgent(g, one, agentd.Options{Logger: log, Metrics: m, AgentSigningKey: memberKey(master, one.ID),
			Trainer: f.trainer(i, one), Observer: faults, WrapConnection: faults.wrap})
	}
	<-g.Context().Done()
	if cmd.Context().Err() != nil {
		return nil // the user has stopped the fleet
	}
	return context.Cause(g.Context())
}

// trainer returns the trainer of agent i. The flag --lie gives the exact fraction of agents that send false updates.
func (f *fleet) trainer(i int, one *settings.Agent) training.Trainer {
	var t training.Trainer = slow.Trainer{Trainer: agentconfig.LocalTrainer(one),
		StepTime: one.Compute.DeclaredStepTime}
	if slices.Contains(f.drawAgents("lie", f.lyingAgents.fraction), i) {
		t = liar.Trainer{Trainer: t, Lie: f.lyingAgents.Lie}
	}
	return t
}

func (f *fleet) drawAgents(what string, fraction float64) []int {
	return f.randFor(what).Perm(f.agents)[:int(math.Round(fraction*float64(f.agents)))]
}

// members returns the settings of all agents in the fleet. The flag --slow gives the exact fraction of agents that take
// slow local steps.
func (f *fleet) members(s *settings.Agent) []*settings.Agent {
	slow := f.drawAgents("slow", f.slow.fraction)
	all := make([]*settings.Agent, f.agents)
	for i := range all {
		one := *s
		one.ID = memberID(s, i)
		one.StateDir = filepath.Join(s.StateDir, one.ID)
		one.Data.ShareCount = cmp.Or(f.dataShares, f.agents)
		one.Data.ShareIndex = i % one.Data.ShareCount
		if slices.Contains(slow, i) {
			one.Compute.DeclaredStepTime = time.Duration(f.slow.factor * float64(cmp.Or(s.Compute.DeclaredStepTime,
				time.Millisecond)))
		}
		all[i] = &one
	}
	return all
}

func memberID(s *settings.Agent, i int) string { return fmt.Sprintf("%s-%d", s.ID, i) }

// memberKey derives the private key of an agent from the fleet's master key.
func memberKey(master ed25519.PrivateKey, id string) ed25519.PrivateKey {
	h := hmac.New(sha256.New, master.Seed())
	h.Write([]byte("fedmesh fleet " + id))
	return ed25519.NewKeyFromSeed(h.Sum(nil))
}

func (f *fleet) listKeys(s *settings.Agent, master ed25519.PrivateKey) error {
	var list []byte
	for i := range f.agents {
		id := memberID(s, i)
		list = fmt.Appendf(list, "%s %s\n", id, keys.FormatPublic(keys.Public(memberKey(master, id))))
	}
	return store.LocalDisk.WriteFileDurably(f.keyListPath, list, 0o644)
}
