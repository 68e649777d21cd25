package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/cmd/internal/keys"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/store"
)

// fleet is many agents in one process, for testbeds.
type fleet struct {
	agents     int
	shares     int
	slow       string
	drop, late float64
	seed       uint64
	writeKeys  string
}

func fleetCommand() *cobra.Command {
	var l cli.Loader
	var f fleet
	cmd := &cobra.Command{
		Use: "fleet", Short: "Run many agents in one process, for testbeds", Args: cli.Args(cobra.NoArgs),
		Long: `Run many agents in one process. The configuration is that of one agent: its id
becomes ID-0, ID-1 and so on, their keys are derived from its key file, and its
rows are dealt to them one by one. --write-keys writes the list of public keys
that the coordinator needs.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			factor, fraction, err := f.check()
			if err != nil {
				return err
			}
			s := settings.DefaultAgent()
			if err := settings.Load(&s, "agentd", l.Path, l.Set); err != nil {
				return err
			}
			return f.run(cmd, &s, fraction, factor)
		},
	}
	l.Flags(cmd, configFile)
	cmd.Flags().IntVar(&f.agents, "agents", 10, "number of agents")
	cmd.Flags().IntVar(&f.shares, "shares", 0, "deal the rows to so many shares, which agents have in common (default: one for each)")
	cmd.Flags().StringVar(&f.slow, "slow", "", "FRACTION:FACTOR: so many of the agents take so many times as long per local step")
	cmd.Flags().Float64Var(&f.drop, "drop", 0, "probability that a selected agent vanishes for the round")
	cmd.Flags().Float64Var(&f.late, "late", 0, "probability that a selected agent sends after the deadline")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "of who is slow, vanishes and is late")
	cmd.Flags().StringVar(&f.writeKeys, "write-keys", "", "write the list of public keys for the coordinator to this file, and end")
	return cmd
}

// check reports what cannot be run, and takes --slow apart.
func (f *fleet) check() (factor, fraction float64, err error) {
	factor = 1
	if f.slow != "" {
		a, b, ok := strings.Cut(f.slow, ":")
		var err1, err2 error
		fraction, err1 = strconv.ParseFloat(a, 64)
		factor, err2 = strconv.ParseFloat(b, 64)
		if !ok || err1 != nil || err2 != nil || fraction < 0 || fraction > 1 || factor < 1 {
			return 0, 0, cli.Usage("--slow must be FRACTION:FACTOR, such as 0.3:10 for three of ten that are ten times as slow, is %q", f.slow)
		}
	}
	switch {
	case f.agents < 1:
		return 0, 0, cli.Usage("--agents must be at least 1, is %d", f.agents)
	case f.shares < 0:
		return 0, 0, cli.Usage("--shares must be at least 1, is %d", f.shares)
	case f.drop < 0 || f.drop > 1:
		return 0, 0, cli.Usage("--drop must be a probability, is %v", f.drop)
	case f.late < 0 || f.late > 1:
		return 0, 0, cli.Usage("--late must be a probability, is %v", f.late)
	}
	return factor, fraction, nil
}

// run runs the fleet, or only writes the list of its keys.
func (f *fleet) run(cmd *cobra.Command, s *settings.Agent, fraction, factor float64) error {
	master, err := keys.Private(s.Identity.KeyFile)
	if err != nil {
		return err
	}
	if f.writeKeys != "" {
		return f.listKeys(s, master)
	}
	log, err := daemon.Logger(cmd.ErrOrStderr(), s.Log)
	if err != nil {
		return err
	}
	reg := metrics.NewRegistry("agentd")
	m := metrics.NewAgent(reg, time.Now)
	if err := daemon.Serve(cmd.Context(), s.Metrics, reg, log); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range f.agents {
		one := f.member(s, i, fraction, factor)
		key := memberKey(master, one.ID)
		o := daemon.AgentOptions{Logger: log, Metrics: m, Suspend: f.mischief(i), Key: key}
		all.Go(func() {
			if err := daemon.RunAgent(ctx, one, o); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("agent %s: %w", one.ID, err))
			}
		})
	}
	all.Wait()
	if cmd.Context().Err() != nil {
		return nil // asked to stop
	}
	return context.Cause(ctx)
}

// member returns the settings of agent i.
func (f *fleet) member(s *settings.Agent, i int, fraction, factor float64) *settings.Agent {
	one := *s
	one.ID = memberID(s, i)
	one.StateDir = filepath.Join(s.StateDir, one.ID)
	one.Data.Shares = cmp.Or(f.shares, f.agents)
	one.Data.Share = i % one.Data.Shares
	if f.draw(i, "slow").Float64() < fraction {
		one.Compute.StepTime = time.Duration(factor * float64(cmp.Or(s.Compute.StepTime, time.Millisecond)))
	}
	return &one
}

func memberID(s *settings.Agent, i int) string { return fmt.Sprintf("%s-%d", s.ID, i) }

// memberKey derives the key of a fleet's member from the fleet's one key file.
func memberKey(master ed25519.PrivateKey, id string) ed25519.PrivateKey {
	h := hmac.New(sha256.New, master.Seed())
	h.Write([]byte("fedmesh fleet " + id))
	return ed25519.NewKeyFromSeed(h.Sum(nil))
}

func (f *fleet) listKeys(s *settings.Agent, master ed25519.PrivateKey) error {
	var list []byte
	for i := range f.agents {
		id := memberID(s, i)
		list = fmt.Appendf(list, "%s %s\n", id, keys.Format(keys.Public(memberKey(master, id))))
	}
	return store.WriteFile(f.writeKeys, list, 0o644)
}

// draw returns the source of an agent's mischief.
func (f *fleet) draw(i int, what string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", what, i)
	return rand.New(rand.NewPCG(f.seed, h.Sum64()))
}

// mischief makes an agent vanish before it trains, or sleep past the deadline
// before it sends.
func (f *fleet) mischief(i int) func(agent.Moment, time.Time) time.Duration {
	if f.drop == 0 && f.late == 0 {
		return nil
	}
	rng := f.draw(i, "mischief")
	return func(m agent.Moment, deadline time.Time) time.Duration {
		chance := f.drop
		if m == agent.BeforeSubmitting {
			chance = f.late
		}
		if rng.Float64() >= chance {
			return 0
		}
		return time.Until(deadline) + time.Second
	}
}
