package setup

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Answers describe a new federation, as given on the command line.
type Answers struct {
	FederationName        string
	BrokerURL             string
	Features              []string // input columns in the devices' files
	Target                string   // column to predict; empty for an autoencoder
	Model                 spec.ModelKind
	ClassCount            int // number of classes, numbered from 0; 0 if the target is a number
	Algorithm             spec.Algorithm
	DeviceCount           int
	DeviceKeys            []string // lines of the list of agents, ID KEY
	UsesRobustAggregation bool
	// CoordinatorURL is the URL at which devices join, https://HOST:PORT. If it is empty, the broker's host is used.
	CoordinatorURL string
	Discovered     *DiscoveredTask // inputs and grid of the task; nil if the devices have files
}

// Validate reports all invalid answers, by the name of the command's flag.
func (a *Answers) Validate() error {
	var c spec.ProblemList
	c.AddError("NAME", wire.FederationName(a.FederationName).Validate())
	c.Require(len(a.Features) > 0, "--features",
		"is empty: specify the names of the input columns, or a CSV file with --from")
	c.Require(a.Target != "" || !a.Model.HasTarget(), "--target", "is empty: specify the name of the column to predict")
	c.Require(a.Target == "" || a.Model.HasTarget() || a.Model == spec.ModelExternal, "--target",
		"is %s, but a model of kind %s has no target column: remove this option", a.Target, a.Model)
	c.Require(a.Target == "" || !slices.Contains(a.Features, a.Target), "--features", "contains the target column "+
		"%s, which cannot also be an input",
		a.Target)
	for i, name := range a.Features {
		c.Require(!slices.Contains(a.Features[:i], name), "--features", "contains %s twice", name)
	}
	c.AddError("--model", a.Model.Validate())
	c.Require(a.Model != spec.ModelExternal, "--model", "is external, which this command does not support: "+
		"docs/TRAINER.md describes the configuration for coordinator.yaml")
	c.Require(a.Model != spec.ModelConv1D, "--model",
		"is conv1d, but its channels and filters cannot be set here: use mlp, and change task.model in "+
			"coordinator.yaml as described in docs/ALGORITHMS.md")
	c.AddError("--algorithm", a.Algorithm.Validate())
	if u, err := url.Parse(a.CoordinatorURL); a.CoordinatorURL != "" {
		c.Require(err == nil && u.Scheme == "https" && u.Hostname() != "" && u.Port() != "", "--join",
			"must be https://HOST:PORT, but is %q", a.CoordinatorURL)
		c.Require(a.usesTokens(), "--join", "is set, but %s is a broker without TLS, for which device keys are "+
			"distributed by hand",
			a.BrokerURL)
	}
	c.Require(len(a.DeviceKeys) == 0 || !a.usesTokens(), "--device",
		"is set, but devices join with tokens, because the "+
			"broker %s uses TLS: remove this option", a.BrokerURL)
	for _, line := range a.DeviceKeys {
		id, key, _ := strings.Cut(line, " ")
		c.AddError("--device", wire.AgentID(id).Validate())
		_, err := keys.ParsePublic(key)
		c.AddError("--device", err)
	}
	c.Require(a.DeviceCount >= 1, "--agents", "must be at least 1, but is %d", a.DeviceCount)
	switch a.Model {
	case spec.ModelLinear:
		c.Require(a.ClassCount == 0, "--classes", "is %d, but a linear model predicts a number, not a class: remove "+
			"this option", a.ClassCount)
	case spec.ModelAutoencoder:
		c.Require(a.ClassCount == 0, "--classes", "is %d, but an autoencoder predicts no class: remove this option",
			a.ClassCount)
	case spec.ModelLogistic:
		c.Require(a.ClassCount == 0 || a.ClassCount == 2, "--classes", "must be 2 for logistic, but is %d",
			a.ClassCount)
	case spec.ModelSoftmax:
		c.Require(a.ClassCount >= 2, "--classes", "must be at least 2 for softmax, but is %d", a.ClassCount)
	case spec.ModelMLP:
		c.Require(a.ClassCount == 0 || a.ClassCount >= 2, "--classes", "must be at least 2, or 0 to predict a "+
			"number, but is %d",
			a.ClassCount)
	}
	return c.Err()
}

// mlpLossKind returns the loss function of an mlp that suits the target: classes or a number.
func (a *Answers) mlpLossKind() spec.LossKind {
	if a.ClassCount > 0 {
		return spec.LossSoftmax
	}
	return spec.LossSquared
}

// ModelKinds returns the kinds of model that can be chosen, except autoencoders, which have no target.
func ModelKinds() []string {
	var all []string
	for _, kind := range spec.ModelKinds() {
		if stepSizeByModel[kind] > 0 && kind.HasTarget() {
			all = append(all, string(kind))
		}
	}
	return all
}

// stepSizeByModel is the step size μ for standardised columns, by kind of model. It is divided among the local steps of
// a round. TestFoundedFederationsLearn measures the resulting risk.
var stepSizeByModel = map[spec.ModelKind]float64{
	spec.ModelLinear: 0.4, spec.ModelLogistic: 1, spec.ModelSoftmax: 1, spec.ModelMLP: 1,
	spec.ModelAutoencoder: 1,
}

const (
	// number of units of an mlp's hidden layer, and of an autoencoder's layers before and after the code layer.
	hiddenUnits          = 16
	localStepsWithMixing = 20 // number of local steps per round if agents mix after each step
	roundPause           = 2 * time.Second
	// A run ends after stopPatience rounds without a lower risk, and after maxRounds at the latest.
	stopPatience, maxRounds = 10, 100
	maxDrawnAgents          = 10 // all agents of a small federation participate; in a large one, a fifth of them
)

// coordinatorConfigValues returns the values in coordinator.yaml that depend on the answers, by key.
func (a *Answers) coordinatorConfigValues() map[string]any {
	step := stepSizeByModel[a.Model]
	drawn := min(a.DeviceCount, max(maxDrawnAgents, a.DeviceCount/5))
	quorum := (2*drawn + 2) / 3
	keys := map[string]any{
		"federation": a.FederationName, "broker.url": a.BrokerURL,
		"task.name": a.FederationName, "task.features": a.Features, "task.target": a.Target,
		"task.model.kind":         string(a.Model),
		"task.step_size.constant": step,
		"round.rounds":            maxRounds, "round.stop.patience": stopPatience, "round.pause": roundPause,
		"round.participants": drawn, "round.quorum": quorum,
		"round.gather.minimum": quorum, "round.gather.target": a.DeviceCount, "round.gather.first": a.DeviceCount,
	}
	if t := a.Discovered; t != nil {
		keys["task.inputs"], keys["task.grid.step"], keys["task.grid.lateness"] = t.Inputs, t.Grid.Step, t.Grid.Lateness
		if t.Grid.TimeZone != "" {
			keys["task.grid.zone"] = t.Grid.TimeZone
		}
	}
	if a.UsesRobustAggregation {
		keys["round.robust"] = true
	}
	if a.ClassCount > 0 && (a.Model == spec.ModelSoftmax || a.Model == spec.ModelMLP) {
		keys["task.model.classes"] = a.ClassCount
	}
	if a.Model == spec.ModelMLP {
		keys["task.model.hidden"], keys["task.model.risk"] = []int{hiddenUnits}, string(a.mlpLossKind())
	}
	if a.Model == spec.ModelAutoencoder {
		keys["task.model.hidden"] = []int{hiddenUnits, max(1, len(a.Features)/2), hiddenUnits}
	}
	if a.Algorithm == spec.FedDec {
		keys["round.algorithm"], keys["round.sampling"] = string(spec.FedDec), string(spec.SamplingWithReplacement)
		keys["task.steps.max"] = localStepsWithMixing
		keys["task.step_size.constant"], keys["task.step_size.normalize"] = step/localStepsWithMixing, false
		keys["mesh.edges"] = string(spec.EdgesRing)
	}
	return keys
}

// agentConfigValues returns the values in agentd.yaml that depend on the answers, by key. The argument key is the
// coordinator's public key.
func (a *Answers) agentConfigValues(key string) map[string]any {
	keys := map[string]any{"federation": a.FederationName, "broker.url": a.BrokerURL, "identity.coordinator_key": key,
		"id": ""} // the id is set on each device; agentd does not start without it
	if a.Discovered == nil {
		keys["data.csv"] = "" // set on each device, too
	}
	if a.Algorithm == spec.FedDec {
		keys["d2d.uplink"] = true
	}
	return keys
}

// Summary describes in one line what the federation learns.
func (a *Answers) Summary() string {
	classes := ""
	if a.ClassCount > 0 {
		classes = fmt.Sprintf(", one of %d classes,", a.ClassCount)
	}
	if a.Model == spec.ModelAutoencoder {
		return fmt.Sprintf("%s learns the relations between %s: %s, %s, at most %d rounds", a.FederationName,
			strings.Join(a.Features, ", "), a.Model, a.Algorithm, maxRounds)
	}
	return fmt.Sprintf("%s learns to predict %s%s from %s: %s, %s, at most %d rounds",
		a.FederationName, a.Target, classes,
		strings.Join(a.Features, ", "), a.Model, a.Algorithm, maxRounds)
}
