package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// fit is the fitness of an agent that can do the task. The other values are reasons for declining.
const fit = "fit"

// sizingReasons is the closed set of what decides the number of local steps.
var sizingReasons = []learner.SizingReason{learner.ByBudget, learner.ByMinimum, learner.ByMaximum, learner.Unmeasured,
	learner.Eased}

// Agent shows the facts of an agent as the agentd_* metrics.
type Agent struct {
	now func() time.Time
	*broker
	*reload
	storageOK   prometheus.Gauge
	lostFiles   *prometheus.CounterVec // by file
	bootsRaised prometheus.Counter
	unheard     gaugeSet // by reason
	keyAwaited  prometheus.Gauge

	rounds    *prometheus.CounterVec // by kind, result and reason
	settled   *prometheus.CounterVec // by fate
	unsent    prometheus.Gauge
	givenUp   prometheus.Counter
	working   prometheus.Gauge
	lastRound measure
	round     measure
	ignored   *prometheus.CounterVec

	stale prometheus.Gauge

	fitness  gaugeSet
	samples  measure
	dataLoad measure
	source   *collected

	budget, budgetUsed, estimate measure
	budgetShort                  prometheus.Counter

	judged                                       *prometheus.CounterVec // by rule and decision
	share, load, temperature, battery, available measure

	modelVersion, modelBytes measure
	modelFetches             prometheus.Counter

	inUse, inUseSince, trialRisk, inUseRisk measure
	certificateEnds                         measure
	modelsJudged                            *prometheus.CounterVec // by result
	hookFailures                            prometheus.Counter
	trainerEnds                             prometheus.Counter

	forecasts, forecastsLost, forecastsFailed, anomalies prometheus.Counter
	forecastsOK, forecastAt, residual                    measure
	forecastTook                                         prometheus.Observer

	riskBefore, riskAfter                                measure
	held                                                 heldOut
	localSteps, stepEstimate                             measure
	sizing                                               *prometheus.CounterVec
	stepTook, trainingTook                               prometheus.Observer
	flows, flowsLate, mixSkipped, mixWaits, unreconciled prometheus.Counter
	mixIgnored                                           *prometheus.CounterVec // by reason
	edgesLost                                            *prometheus.CounterVec // by reason
	mixingTook                                           prometheus.Observer
	neighbors, others                                    measure
	blocks                                               *prometheus.CounterVec // by what they began with
	trainingFailures                                     prometheus.Counter
	waits                                                prometheus.Gauge
	waited                                               prometheus.Counter
}

// NewAgent registers the metrics of an agent. now is the clock for the timestamp among them. Those of one of several
// federations of a device have its name as their label federation; the name is empty where there is one.
func NewAgent(reg prometheus.Registerer, now func() time.Time, federation string) *Agent {
	r := registrar{reg: reg, program: "agentd"}
	if federation != "" {
		r.labels = prometheus.Labels{"federation": labelValue(federation)}
	}
	a := &Agent{
		now:    now,
		broker: newBroker(r, words(agent.DropReasons())),
		reload: newReload(r, now), storageOK: newStorage(r),
		lostFiles: r.counterBy("state_files_lost_total",
			"Files in the state folder that were damaged or of another version at this start, and are done without.",
			"file", agent.StateFiles()),
		keyAwaited: r.gauge("key_awaited", "Whether the device lacks the key under which tasks and models are "+
			"sealed (1), for which it asks the coordinator, or not (0)."),
		unheard: r.gaugeBy("unheard",
			"1 for the reason why the coordinator does not hear this device, as it has told; 0 for all others, and "+
				"for all while it is heard.", "reason", names(wire.UnheardReasons())),
		bootsRaised: r.counter("starts_raised_total",
			"Times that the broker had a presence of an earlier start with a higher number, so that the counter of "+
				"starts was raised."),
		rounds: r.counters("rounds_total",
			"Rounds that this device was drawn for and that are over for it, by kind of round, result, and the "+
				"reason for a refusal or a declining.",
			"kind", "result", "reason"),
		settled: r.counterBy("updates_settled_total",
			"Updates of this device whose round is over, by what became of them: folded into the model, left out "+
				"of it (not_finite, risk, norm, refuse_above, rule), missed (not there when the round was closed), "+
				"abandoned with their round, or unknown.",
			"fate", names(wire.Fates())),
		unsent: r.gauge("update_residual_norm", "Length of what the codec top_k has not sent of the updates of this "+
			"device, which goes with the next one; 0 with any other codec."),
		givenUp: r.counter("update_residuals_lost_total", "How often what the codec top_k had not sent was given up, "+
			"because nobody could say what became of the update, or it was of another run or other columns."),
		stale: r.gauge("announcements_stale",
			"1 if a round is open, but no new announcement has arrived for three times the maximum duration of a "+
				"round: the coordinator is offline, or the broker withholds its announcements."),
		working: r.gauge("round_in_progress", "Whether this device is at work in a round (1) or not (0)."),
		lastRound: r.measure("last_round_timestamp_seconds",
			"When this device's part in a round last ended, whatever the result, in Unix time."),
		round: r.measure("round", "Number of the round in the announcement that is obeyed."),
		ignored: r.counterBy("announcements_ignored_total",
			"Announcements that were not obeyed: older ones are replays, a conflict is two coordinators with one key.",
			"reason", words(round.IgnoreReasons())),
	}
	a.addLocal(r)
	a.addDevice(r)
	a.addTraffic(r)
	a.addTraining(r)
	a.addPredictions(r)
	a.addMixing(r)
	for _, kind := range roundKinds {
		a.nameRounds(kind)
	}
	return a
}

// addLocal registers the metrics of the local data.
func (a *Agent) addLocal(r registrar) {
	a.fitness = r.gaugeBy("task_fitness",
		"Whether the local data fit the announced task: 1 for fit or for the reason why not, 0 for all others; "+
			"all 0 until a task came.",
		"fitness", append([]string{fit}, names(wire.DeclineReasons())...))
	a.samples = r.measure("samples", "Rows of local data that fit the announced task.")
	a.dataLoad = r.measure("data_load_seconds", "Time that reading the local data for the announced task took.")
	a.source = newCollected(r)
}

// addDevice registers those of the rules that spare the device.
func (a *Agent) addDevice(r registrar) {
	a.share = r.measure("device_share",
		"Share of the local steps that the rules for this device allow now; 0 = it declines. Only with rules.")
	a.judged = r.counters("device_decisions_total",
		"Times that the rules for this device began to spare it (ease) or to bar it (stop), by the rule.",
		"rule", "decision")
	a.load = r.measure("device_load_ratio",
		"Average number of programs that ran or wanted to, in the last minute, per core; only with rules.")
	a.temperature = r.measure("device_temperature_celsius", "Temperature of the hottest sensor; only with rules.")
	a.battery = r.measure("device_battery_ratio", "Level of the emptiest battery, from 0 to 1; only with rules.")
	a.available = r.measure("device_memory_available_bytes",
		"Memory that programs can have without swapping; only with rules.")
	for _, rule := range device.AllRules() {
		a.judged.WithLabelValues(string(rule), "stop")
		if rule.Eases() {
			a.judged.WithLabelValues(string(rule), "ease")
		}
	}
}

// addTraffic registers those of the month's budget.
func (a *Agent) addTraffic(r registrar) {
	a.budget = r.measure("budget_bytes",
		"Bytes that the uplink may carry in a calendar month, if that is bounded.")
	a.budgetUsed = r.measure("budget_used_bytes",
		"Bytes that the uplink has carried in this calendar month, as an operator would count them.")
	a.estimate = r.measure("round_estimate_bytes",
		"Bytes that the announced round, or the next one, will move over the uplink, as estimated before joining "+
			"it; only with a budget.")
	a.budgetShort = r.counter("budget_short_total",
		"Times that the rest of the month's budget became too small for a round.")
}

// addTraining registers those of models and local steps.
func (a *Agent) addTraining(r registrar) {
	a.modelVersion = r.measure("model_version",
		"Version of the base model that was fetched last: the number of aggregations behind it.")
	a.modelBytes = r.measure("model_bytes", "Size of the base model that was fetched last.")
	a.modelFetches = r.counter("model_fetches_total", "Base models that were fetched.")
	a.riskBefore = r.measure("local_risk_before",
		"Risk of the base model on the local data, or on 4096 rows drawn of them, in the last round trained.")
	a.riskAfter = r.measure("local_risk_after",
		"Risk on the same rows after the local steps, in the last round trained.")
	a.held = newHeldOut(r, "the base model of the last round trained")
	a.localSteps = r.measure("local_steps", "Local steps E_k that were taken in the last round trained.")
	a.stepEstimate = r.measure("step_seconds",
		"Time per local step, as estimated over the last rounds or declared; "+
			"it decides the number of local steps.")
	a.sizing = r.counterBy("local_steps_decisions_total",
		"Rounds trained, by what decided the number of local steps: the time budget, a bound, or that no speed "+
			"was measured yet.",
		"reason", names(sizingReasons))
	a.stepTook = r.histogram("step_duration_seconds", "Time per local step, as measured in each round.",
		stepBuckets)
	a.trainingTook = r.histogram("training_duration_seconds", "Time that the local steps of a round took.",
		trainingBuckets)
	a.waits = r.gauge("training_waits",
		"Whether training waits (1) or not (0), since the device trains for another of its federations.")
	a.waited = r.counter("training_wait_seconds_total",
		"Time that training has waited while the device trained for other federations, in waits of 0.1 s and more.")
	a.trainingFailures = r.counter("training_failures_total", "Rounds in which training gave no update.")
}

// addPredictions registers those of the models that the device predicts with.
func (a *Agent) addPredictions(r registrar) {
	a.inUse = r.measure("model_in_use_version", "Version of the model that the device predicts with.")
	a.certificateEnds = r.measure("certificate_expires_timestamp_seconds",
		"When the device's certificate for the broker ends.")
	a.inUseSince = r.measure("model_in_use_timestamp_seconds",
		"When that model came into use, also before this start, in Unix time.")
	a.modelsJudged = r.counterBy("models_judged_total",
		"New models, by what became of them: taken into use, or not, since they are worse than the one in use on the "+
			"held-out rows, are not finite, could not be judged (blind) or stored (failed).",
		"result", words(agent.ModelResults()))
	a.trialRisk = r.measure("model_judged_risk", "Risk of the newest model that was judged, on the held-out rows.")
	a.inUseRisk = r.measure("model_in_use_risk",
		"Risk of the model that was in use when the newest one was judged, on the same rows.")
	a.hookFailures = r.counter("model_hook_failures_total", "Times that the command predict.hook failed.")
	a.trainerEnds = r.counter("trainer_ends_total",
		"Times that a program which trains external models ended, or was ended, though it was needed.")
	a.forecastsOK = r.measure("forecasts_ok",
		"Whether forecasts are made and published (1), or not (0): rows cannot be read, or the broker is away.")
	a.forecasts = r.counter("forecasts_total", "Predictions, and residuals, that were published.")
	a.forecastsLost = r.counter("forecasts_lost_total", "Those that could not be published.")
	a.forecastsFailed = r.counter("forecasts_failed_total",
		"Rows without a prediction: it would not be finite, or the label is no class.")
	a.anomalies = r.counter("anomalies_total", "Residuals beyond the usual (predict.anomaly).")
	a.forecastAt = r.measure("forecast_timestamp_seconds", "When the last forecast was published, in Unix time.")
	a.residual = r.measure("residual_mean",
		"Mean magnitude of the last 1,000 residuals, in the target's unit or as a probability.")
	a.forecastTook = r.histogram("forecast_duration_seconds",
		"Time to find a row and to predict, on average over the rows of a look.", stepBuckets)
}

// addMixing registers those of the neighbours.
func (a *Agent) addMixing(r registrar) {
	a.flows = r.counter("mixing_flows_total", "Flows from neighbours that were applied.")
	a.flowsLate = r.counter("mixing_flows_late_total",
		"Of these, those applied after the step of their snapshots.")
	a.mixSkipped = r.counter("mixing_skipped_total",
		"Snapshots that were not issued on an edge, since the edge was behind.")
	a.mixWaits = r.counter("mixing_waits_total", "Steps whose wait for neighbours ended at its deadline.")
	a.unreconciled = r.counter("mixing_unreconciled_total",
		"Edges on which, at the end of a round, one end may have applied a flow that the other did not.")
	a.mixIgnored = r.counterBy("mixing_ignored_total",
		"Messages from the neighbours' broker that were not used, by reason.", "reason", names(d2d.Ignores()))
	a.edgesLost = r.counterBy("mixing_edges_ended_total",
		"Edges that the coordinator has taken away for some rounds, by reason.", "reason", names(wire.EndReasons()))
	a.mixingTook = r.histogram("mixing_duration_seconds",
		"Time that the block of a round took, local steps and mixing.", trainingBuckets)
	a.neighbors = r.measure("neighbors",
		"Neighbours that this device has chosen in its cell, if it looks for some.")
	a.others = r.measure("cell_agents", "Other devices that were there, in its cell, when it chose them.")
	a.blocks = r.counterBy("mixing_blocks_total",
		"Blocks without an end that were begun, by what they began with.", "from", words(agent.BlockSources()))
}

// Buckets: a step takes microseconds on a server and seconds on the smallest
// device; training is cut off by a round's deadline.
var (
	stepBuckets     = []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}
	trainingBuckets = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800}
)

func (a *Agent) nameRounds(kind wire.Kind) {
	for _, result := range round.WorkResults() {
		reasons := []string{noReason}
		switch result {
		case round.WorkRefused:
			reasons = names(wire.RefuseReasons())
		case round.WorkDeclined:
			reasons = names(wire.DeclineReasons())
		}
		for _, reason := range reasons {
			a.rounds.WithLabelValues(kind.String(), string(result), reason)
		}
	}
}

// Traffic counts one message of the session. Unlike Observe it may be called from several goroutines.
func (a *Agent) Traffic(t mqtt.Traffic, kind mqtt.Kind) { a.traffic(t, kind) }
