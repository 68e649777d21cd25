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
		Use: "demo", Short: "Run a complete federation on this machine, on real data",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Run a broker, a coordinator and twelve agents on this machine. Each agent has the
measurements of one weather station in Beijing over a different quarter of a year, and
keeps them private. Together they learn to predict air pollution six hours ahead.

With --algorithm feddec, the agents also mix their parameters with their neighbours,
over a second broker. For comparison, the same federation runs without mixing at the
same time. The task is the regression of the FedDec paper, or the air data.`,
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
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of all random numbers; the same seed gives a bit-identical model")
	f.IntVar(&o.Rounds, "rounds", 0, "number of rounds (default: 50, or 100 for an mlp)")
	f.IntVar(&o.Participants, "participants", o.Participants, "number of agents that participate in a round "+
		"(default: 6, or 2 for feddec with the task regression)")
	f.StringVar(&o.Model, "model", o.Model, "model kind: linear or mlp")
	f.StringVar(&o.Broker, "broker", "",
		"URL of a running broker, such as tcp://127.0.0.1:1883 (default: an embedded one)")
	f.StringVar(&o.Username, "username", "", "user name for --broker")
	f.StringVar(&o.PasswordFile, "password-file", "", "file with the password of --username")
	f.StringVar(&o.CAFile, "ca-file", "", "trusted certificates for --broker, in PEM (default: the system's)")
	f.BoolVar(&o.Processes, "processes", false, "run each agent as a separate agentd process")
	f.BoolVar(&o.Streams, "streams", false,
		"let each agent receive raw sensor readings over a separate MQTT broker and build the training rows itself")
	f.StringVar(&o.Agentd, "agentd", "",
		"path of the program agentd for --processes (default: in the folder of fedlab, in PATH, or compiled)")
	f.BoolVar(&o.Page, "page", false, "serve the coordinator's web console, and keep it open after the run until "+
		"Ctrl-C")
	f.StringVar(&o.Metrics, "metrics", "", "serve metrics for Prometheus at this host:port")
	f.StringVar(&o.Out, "out", "", "folder for the model (safetensors), the history and the result")
	f.StringVar((*string)(&o.Algorithm), "algorithm", string(o.Algorithm),
		"fedavg, or feddec, in which agents also exchange parameters with neighbours; feddec is compared with fedavg")
	f.StringVar(&o.Task, "task", "", "training task with feddec: regression or air (default: regression)")
	f.StringVar(&o.SiteBroker, "d2d-broker", "",
		"URL of the MQTT broker for traffic between neighbours (default: an embedded one, or the broker in --broker)")
	f.StringVar((*string)(&o.Codec), "codec", string(o.Codec),
		"with feddec: encoding of the messages between neighbours: raw, bfloat16, int8 or int4")
	f.Float64Var(&o.Loss, "loss", 0, "with feddec: probability that a message between neighbours is lost")
	f.IntVar(&delay, "delay", 0, "with feddec: longest delay of a message between neighbours, in milliseconds")
	f.Float64Var(&o.Duplicates, "dup", 0, "with feddec: probability that a message between neighbours arrives twice")
	f.IntVar(&o.Kill, "kill", 0, "with feddec: number of agents that are killed during a round and restarted")
	f.Float64Var(&o.Clip, "clip", 0, "with feddec: limit on how far a neighbour's parameters can move an agent's "+
		"parameters, as in task.mixing.clip")
	f.StringVar(&o.Lie, "lie", "",
		"with feddec: attack that the fifth agent performs, one of "+strings.Join(liar.Names(), ", "))
	f.StringVar(&o.Rule, "rule", "", "aggregation rule of the coordinator, one of "+strings.Join(rule.Names(), ", "))
	f.StringVar(&o.Attack, "attack", "", "attack in which some agents replace their updates, one of "+
		strings.Join(liar.Names(), ", "))
	f.IntVar(&o.Attackers, "attackers", 0, "number of attacking agents; the aggregation rule is configured for the "+
		"same number")
	f.Var((*cli.Overrides)(&o.Set), "set", "set a key of coordinator.yaml, such as "+
		"round.server_optimizer.name=fedadam; may be repeated")
	f.Var((*cli.Overrides)(&o.AgentSet), "agent-set", "set a key of all agents' agentd.yaml, such as "+
		"evaluation.held_out=0.3; may be repeated")
	f.BoolVar(&o.JSON, "json", false, "print JSON, one object per line")
	return cmd
}
