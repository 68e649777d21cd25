package demo

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// Options are the flags of the demo.
type Options struct {
	Seed         uint64
	Rounds       int    // number of rounds; 0 means the default for the model
	Participants int    // number of participants per round; 0 means 6, or 2 for the regression task
	Model        string // kind of model: linear or mlp
	Broker       string // URL of a running broker; "" starts an embedded broker
	// Username, PasswordFile and CAFile are the credentials for Broker. They correspond to the settings
	// broker.username, broker.password_file and broker.ca_file.
	Username, PasswordFile, CAFile string
	Processes                      bool   // true to run each agent as a separate process
	Streams                        bool   // true to publish readings, from which the agents make the rows themselves
	Agentd                         string // path of agentd if Processes is true; "" means to search for it

	Algorithm spec.Algorithm
	Task      string // task for FedDec: air or regression; "" means regression
	// SiteBroker is the URL of the broker for messages between neighbours. If it is empty, neighbours use Broker, or an
	// embedded broker if Broker is empty too.
	SiteBroker string
	Codec      spec.Codec // encoding of the snapshots that neighbours exchange
	// Loss and Duplicates are probabilities and Delay is the maximum delay of messages between neighbours. Kill is the
	// number of agents that are killed and restarted.
	Loss, Duplicates float64
	Delay            time.Duration
	Kill             int
	// Clip is the setting task.mixing.clip. Lie names the false snapshots, defined in package liar, that the fifth
	// agent sends to its neighbours. "" means honest snapshots.
	Clip float64
	Lie  string

	// Rule is the setting round.aggregation.rule. "" means the mean. Attack names the attack, defined in package liar,
	// of the first Attackers agents. "" means no attack.
	Rule, Attack string
	Attackers    int

	// Set overrides keys in coordinator.yaml, and AgentSet overrides keys in the agentd.yaml of each agent.
	Set, AgentSet map[string]string

	// Page is true to serve the coordinator's web console, and to keep it open after the run until the context ends.
	Page    bool
	Metrics string // address (host:port) at which to serve metrics; "" disables metrics
	Out     string // folder for the output files; "" means none
	JSON    bool

	Stdout, Stderr io.Writer

	recent *logging.RecentRecords // newest log records, for the console; nil unless Page is true
}

// Defaults returns the default options of the demo.
func Defaults() Options {
	return Options{Seed: 1, Model: "linear", Algorithm: spec.FedAvg, Codec: spec.CodecRaw}
}

// stepTimes contains the time per local step of the agents, used cyclically. In the same time the fastest agent takes
// eight times as many steps as the slowest.
var stepTimes = []time.Duration{
	2500 * time.Microsecond, 4 * time.Millisecond, 5 * time.Millisecond, 8 * time.Millisecond, 10 * time.Millisecond,
	20 * time.Millisecond,
}

// budget is the time that each agent may spend on local steps in a round.
const budget = 80 * time.Millisecond

func (o *Options) rounds() int {
	switch {
	case o.Rounds > 0:
		return o.Rounds
	case o.Model == "mlp":
		return 100
	}
	return 50
}

// stations is the number of agents in all demos except the regression task.
const stations = 12

// regressionRuns reports whether the demo runs the regression task of the FedDec paper.
func (o *Options) regressionRuns() bool { return o.Algorithm == spec.FedDec && o.Task != "air" }

func (o *Options) agents() int {
	if o.regressionRuns() {
		return regressionAgents
	}
	return stations
}

// draws returns the number of agents that are drawn in each round.
func (o *Options) draws() int {
	switch {
	case o.Participants > 0:
		return o.Participants
	case o.regressionRuns():
		return 2
	}
	return 6
}

// Validate reports invalid options.
func (o *Options) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	valid := func(flag string, err error) { need(err == nil, "%s: %w", flag, err) }
	need(o.Participants >= 0 && o.Participants <= o.agents(),
		"--participants must be between 1 and %d (0 means %d), but is %d", o.agents(),
		(&Options{Algorithm: o.Algorithm, Task: o.Task}).draws(), o.Participants)
	need(o.Agentd == "" || o.Processes, "--agentd requires --processes")
	need(o.Rounds >= 0, "--rounds must be at least 1, but is %d", o.Rounds)
	need(o.Model == "linear" || o.Model == "mlp", "--model must be linear or mlp, but is %q", o.Model)
	need(o.Broker != "" || o.Username == "" && o.PasswordFile == "" && o.CAFile == "",
		"--username, --password-file and --ca-file require --broker: the embedded broker has its own users")
	valid("--algorithm", o.Algorithm.Validate())
	need(!o.Streams || o.Algorithm != spec.FedDec && !o.Processes && o.Model == "linear",
		"--streams requires --algorithm fedavg and --model linear, and cannot be used with --processes")
	o.validateRule(need, valid)
	if o.Algorithm != spec.FedDec {
		need(o.Task == "" && o.SiteBroker == "" && !o.faulty() && o.Clip == 0 && o.Lie == "",
			"--task, --d2d-broker, --loss, --dup, --delay, --kill, --clip and --lie require --algorithm feddec")
		need(o.Codec == spec.CodecRaw, "--codec requires --algorithm feddec, because it compresses snapshots "+
			"between neighbours: for updates use --set task.codec=%s", o.Codec)
		return errors.Join(errs...)
	}
	need(!o.Processes, "--processes cannot be used with --algorithm feddec, which requires all agents in this process "+
		"to check the sum of their parameters")
	need(o.Metrics == "", "--metrics cannot be used with --algorithm feddec, which runs two federations")
	need(o.Task == "" || o.Task == "air" || o.Task == "regression", "--task must be air or regression, but is %q",
		o.Task)
	need(o.Task == "air" || o.Model == "linear", "--model mlp requires --task air")
	valid("--codec", o.Codec.Validate())
	need(o.Loss >= 0 && o.Loss <= 0.9, "--loss must be from 0 to 0.9, but is %v", o.Loss)
	need(o.Duplicates >= 0 && o.Duplicates <= 1, "--dup must be from 0 to 1, but is %v", o.Duplicates)
	need(o.Delay >= 0 && o.Delay <= 10*time.Second, "--delay must be from 0 to 10s, but is %v", o.Delay)
	need(o.Clip >= 0 && !math.IsInf(o.Clip, 1), "--clip must be a finite number and at least 0, but is %v", o.Clip)
	if o.Lie != "" {
		_, err := liar.Parse(o.Lie)
		valid("--lie", err)
	}
	need(o.Kill >= 0 && o.Kill < stations, "--kill must be from 0 to %d, but is %d", stations-1, o.Kill)
	return errors.Join(errs...)
}

// validateRule reports invalid options of the aggregation rule and of the attackers.
func (o *Options) validateRule(need func(bool, string, ...any), valid func(string, error)) {
	need(o.Attack == "" && o.Rule == "" && o.Attackers == 0 || o.Algorithm != spec.FedDec,
		"--rule, --attack and --attackers require --algorithm fedavg")
	if o.Rule != "" {
		var k spec.ProblemList
		if spec.RequireOneOf(&k, "--rule", o.Rule, rule.Names()...); k.Err() == nil {
			r := o.aggregation()
			r.CheckDraws(&k, o.draws())
		}
		valid("--rule", k.Err())
	}
	if o.Attack == "" {
		need(o.Attackers == 0, "--attackers is %d, but --attack is not set: set --attack to the kind of attack",
			o.Attackers)
		return
	}
	_, err := liar.Parse(o.Attack)
	valid("--attack", err)
	need(o.Attackers >= 1 && o.Attackers <= stations, "--attackers must be from 1 to %d, but is %d", stations,
		o.Attackers)
	need(!o.Processes, "--attack cannot be used with --processes, because the program agentd cannot send false updates")
}

// aggregation returns the settings of the aggregation rule. Robust rules tolerate o.Attackers false updates.
func (o *Options) aggregation() rule.Config {
	a := round.DefaultConfig().Aggregation
	if o.Rule == "" {
		return a
	}
	switch a.Rule = o.Rule; a.Rule {
	case rule.Krum:
		a.MaxByzantineUpdates = o.Attackers
	case rule.MultiKrum:
		a.MaxByzantineUpdates, a.AveragedUpdates = o.Attackers, max(1, o.draws()-o.Attackers)
	case rule.CenteredClipping:
		a.ClippingRadius = radius
	}
	return a
}

// radius is the clipping radius of the aggregation rule centered clipping. It is about as large as the norm of an
// update in the demo.
const radius = 0.3

// weights selects agent weights by number of rows, or equal weights if the aggregation rule does not support weights.
func (o *Options) weights() spec.AgentWeightRule {
	var k spec.ProblemList
	spec.ChosenOptions{spec.OptionAggregationRule: o.aggregation().Rule,
		spec.OptionAgentWeights: string(spec.WeightsSamples)}.CheckIncompatibilities(&k,
		spec.InCoordinatorFile, nil)
	if k.Err() != nil {
		return spec.WeightsEqual
	}
	return spec.WeightsSamples
}

// faulty reports whether messages between neighbours have faults or agents are killed.
func (o *Options) faulty() bool { return o.Loss > 0 || o.Duplicates > 0 || o.Delay > 0 || o.Kill > 0 }

// task returns the task of the demo. Each participant divides the constant step size, 0.4 for the linear model, by its
// number of local steps.
func (o *Options) task() settings.Task {
	t := coordinatorsettings.Default().Task
	t.Name, t.Features, t.Target = "air", airFeatures, airTarget
	t.StepSize.Constant, t.BatchSize, t.ClipStandardDeviations, t.MinRows = 0.4, 32, clip, 100
	t.Steps = settings.LocalStepLimits{TimeBudget: budget, Min: 1, Max: 100}
	if o.Model == "mlp" {
		t.StepSize.Constant = 1
		t.Model.Kind, t.Model.HiddenUnits = "mlp", []int{32}
	}
	return t
}

// together is the plan of the FedAvg demo.
type together struct {
	*Options
	files *files
}

// coordinator returns the coordinator's settings. The coordinator waits for all agents and all updates, so that the
// result does not depend on the speed of the agents. A missed deadline is an error of the demo.
func (o together) coordinator() coordinatorsettings.ConfigFile {
	f := o.files
	s := coordinatorsettings.Default()
	s.Task, s.HeldOutData = o.task(), &data.Config{CSVPath: f.held}
	s.Round.Participants, s.Round.Quorum = o.draws(), o.draws()
	s.Round.AgentWeightRule, s.Round.Seed, s.Round.MaxAggregations = o.weights(), o.Seed, o.rounds()
	s.Round.Aggregation = o.aggregation()
	s.Round.Gather = round.GatherConfig{TargetAgents: len(f.stations), MinAgents: len(f.stations),
		WindowLength: time.Minute,
		HelloSpread:  100 * time.Millisecond}
	s.Round.RoundTimeout = time.Minute
	s.Policy.MaxBufferedUpdateBytes = spec.ByteSize(64 << 20)
	s.Metrics, s.Console = settings.Metrics{}, coordinatorsettings.Console{}
	return s
}

// agent returns the settings of agent i, which trains on the data of station i.
func (o together) agent(i int) settings.Agent {
	f := o.files
	s := settings.DefaultAgent()
	s.ID, s.Data.CSVPath = f.stations[i], f.train[i]
	s.Compute.DeclaredStepTime = stepTimes[i%len(stepTimes)]
	s.Metrics = settings.AgentMetrics{}
	return s
}
