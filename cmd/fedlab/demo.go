package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/demo"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

func demoCommand() *cobra.Command {
	o := demo.Defaults()
	delay := 0
	cmd := &cobra.Command{
		Use: "demo", Short: "Run a whole federation on this machine, on real data",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Run a broker, a coordinator and twelve agents on this machine. Each agent has the
measurements of one weather station in Beijing, of a quarter year of its own, and
keeps them. Together they learn to predict air pollution six hours ahead.

With --algorithm feddec the agents also mix their parameters with their neighbours,
over a second broker. The same federation runs beside it without mixing. The task is
the regression of the FedDec paper, or the air data.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Delay = time.Duration(delay) * time.Millisecond
			if err := o.Validate(); err != nil {
				return cli.UsageErrorf("%w", err)
			}
			o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if o.Algorithm == spec.FedDec {
				_, err := demo.RunMixing(cmd.Context(), o)
				return err
			}
			_, err := demo.Run(cmd.Context(), o)
			return err
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of all random draws; the same seed gives the same model, to the bit")
	f.IntVar(&o.Rounds, "rounds", 0, "rounds of training (default: 50, or 100 for an mlp)")
	f.IntVar(&o.Participants, "participants", o.Participants, "agents that take part in a round "+
		"(default: 6; 2 for the regression of feddec)")
	f.StringVar(&o.Model, "model", o.Model, "linear or mlp")
	f.StringVar(&o.Broker, "broker", "",
		"URL of a broker that runs already, such as tcp://127.0.0.1:1883 (default: an embedded one)")
	f.StringVar(&o.Username, "username", "", "user at --broker, for all of the demo")
	f.StringVar(&o.PasswordFile, "password-file", "", "file with the password of --username")
	f.StringVar(&o.CAFile, "ca-file", "", "trusted certificates for --broker, in PEM (default: the system's)")
	f.BoolVar(&o.Processes, "processes", false, "run each agent as an agentd process of its own")
	f.BoolVar(&o.Streams, "streams", false,
		"have the agents hear their stations' raw readings over a broker of the site, and make the rows themselves")
	f.StringVar(&o.Agentd, "agentd", "",
		"the agentd program for --processes (default: beside this program, in PATH, or built)")
	f.StringVar(&o.Metrics, "metrics", "", "serve metrics for Prometheus at this host:port")
	f.StringVar(&o.Out, "out", "", "folder for the model (safetensors), the history and the result")
	f.StringVar((*string)(&o.Algorithm), "algorithm", string(o.Algorithm),
		"fedavg, or feddec: agents mix with their neighbours, shown beside fedavg")
	f.StringVar(&o.Task, "task", "", "task with feddec: regression or air (default: regression)")
	f.StringVar(&o.SiteBroker, "d2d-broker", "",
		"URL of the neighbours' broker (default: embedded, or the one of --broker)")
	f.StringVar((*string)(&o.Codec), "codec", string(o.Codec),
		"encoding between neighbours with feddec: raw, bfloat16, int8 or int4")
	f.Float64Var(&o.Loss, "loss", 0, "with feddec: probability that a message between neighbours is lost")
	f.IntVar(&delay, "delay", 0, "with feddec: longest delay of a message between neighbours, in milliseconds")
	f.Float64Var(&o.Duplicates, "dup", 0, "with feddec: probability that a message between neighbours arrives twice")
	f.IntVar(&o.Kill, "kill", 0, "with feddec: number of agents that are killed in the middle of a round and restarted")
	f.Float64Var(&o.Clip, "clip", 0, "with feddec: bound on the distance of which a flow is, as task.mixing.clip")
	f.StringVar(&o.Lie, "lie", "", "with feddec: what the fifth agent does, one of "+strings.Join(liar.Names(), ", "))
	f.StringVar(&o.Rule, "rule", "", "rule of the coordinator, one of "+strings.Join(rule.Names(), ", "))
	f.StringVar(&o.Attack, "attack", "", "what some of the agents send in the place of their updates, one of "+
		strings.Join(liar.Names(), ", "))
	f.IntVar(&o.Attackers, "attackers", 0, "number of agents that do so; a rule has the numbers that fit as many")
	f.Var((*cli.Overrides)(&o.Set), "set", "set a key of coordinator.yaml, such as "+
		"round.server_optimizer.name=fedadam; may be repeated")
	f.Var((*cli.Overrides)(&o.AgentSet), "agent-set", "set a key of all agents' agentd.yaml, such as "+
		"evaluation.held_out=0.3; may be repeated")
	f.BoolVar(&o.JSON, "json", false, "print JSON, one object per line")
	return cmd
}
