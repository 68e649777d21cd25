package agentmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Agent shows the facts of an agent as the agentd_* metrics.
type Agent struct {
	now func() time.Time
	*metrics.Reload
	Events            *metrics.EventMetrics
	traffic           metrics.SessionTraffic
	lostFiles         *prometheus.CounterVec // by file
	raisedBootNumbers prometheus.Counter
	rejectionReason   metrics.GaugeSet // by reason
	awaitingGroupKey  prometheus.Gauge

	rounds               *prometheus.CounterVec // by kind, result and reason
	settledUpdates       *prometheus.CounterVec // by fate
	unsentResidualNorm   prometheus.Gauge
	lostResiduals        prometheus.Counter
	working              prometheus.Gauge
	lastRound            metrics.OptionalGauge
	round                metrics.OptionalGauge
	ignoredAnnouncements *prometheus.CounterVec

	announcementsStale prometheus.Gauge

	fitness          metrics.GaugeSet
	fittingRows      metrics.OptionalGauge
	dataLoadDuration metrics.OptionalGauge
	dataMetrics      *dataMetrics

	budget, budgetUsed, roundEstimateBytes metrics.OptionalGauge
	budgetShortfalls                       prometheus.Counter

	deviceDecisions                                               *prometheus.CounterVec // by rule and decision
	allowedStepShare, load, temperature, battery, availableMemory metrics.OptionalGauge

	modelVersion, modelBytes metrics.OptionalGauge
	modelFetches             prometheus.Counter

	modelInUseVersion, inUseSince, judgedModelRisk, inUseRisk metrics.OptionalGauge
	certificateEnds                                           metrics.OptionalGauge
	modelsJudged                                              *prometheus.CounterVec // by result
	hookFailures                                              prometheus.Counter
	trainerEnds                                               prometheus.Counter

	forecasts, forecastsLost, forecastsFailed, anomalies prometheus.Counter
	forecastsOK, lastForecastAt, residual                metrics.OptionalGauge
	forecastTook                                         prometheus.Observer

	riskBefore, riskAfter                                                           metrics.OptionalGauge
	heldOutScore                                                                    metrics.HeldOut
	localSteps, stepEstimate                                                        metrics.OptionalGauge
	stepCountDecisions                                                              *prometheus.CounterVec
	stepTook, trainingTook                                                          prometheus.Observer
	appliedFlows, flowsLate, skippedSnapshots, neighbourTimeouts, unreconciledEdges prometheus.Counter
	ignoredPeerMessages                                                             *prometheus.CounterVec // by reason
	edgesLost                                                                       *prometheus.CounterVec // by reason
	mixingTook                                                                      prometheus.Observer
	neighbors, cellAgents                                                           metrics.OptionalGauge
	// by what they began with
	begunBlocks         *prometheus.CounterVec
	trainingFailures    prometheus.Counter
	waitingForTraining  prometheus.Gauge
	trainingWaitSeconds prometheus.Counter
}

// New registers the metrics of an agent. now is the clock for the timestamp among them. Those of one of several
// federations of a device have its name as their label federation; the name is empty where there is one.
func New(reg prometheus.Registerer, now func() time.Time, federation string) *Agent {
	r := metrics.Registrar{Reg: reg, Namespace: "agentd"}
	if federation != "" {
		r.Labels = prometheus.Labels{"federation": metrics.LabelValue(federation)}
	}
	a := &Agent{
		now:    now,
		Reload: metrics.NewReload(r, now),
		Events: metrics.NewEventMetrics(r, now, host.Metrics, metrics.TrafficMetrics, agent.Metrics,
			round.AgentMetrics),
		lostFiles: r.CounterByLabel("state_files_lost_total",
			"Files in the state folder that were damaged or of another version at this start, and are done without.",
			"file", agent.StateFiles()),
		awaitingGroupKey: r.Gauge("key_awaited", "Whether the device lacks the key under which tasks and models are "+
			"sealed (1), for which it asks the coordinator, or not (0)."),
		rejectionReason: r.GaugeByLabel("rejected",
			"1 for the reason why the coordinator ignores this device's messages; 0 for all others, and for all while "+
				"it accepts them.", "reason", metrics.StringerNames(wire.RejectionReasons())),
		raisedBootNumbers: r.Counter("starts_raised_total",
			"Times that the broker had a presence of an earlier start with a higher number, so that the counter of "+
				"starts was raised."),
		rounds: r.Counters("rounds_total",
			"Rounds that this device was drawn for and that are over for it, by kind of round, result, and the "+
				"reason for a refusal or a declining.",
			"kind", "result", "reason"),
		settledUpdates: r.CounterByLabel("updates_settled_total",
			"Updates of this device whose round is over, by what became of them: folded into the model, left out "+
				"of it (not_finite, risk, norm, refuse_above, rule), missed (not there when the round was closed), "+
				"abandoned with their round, or unknown.",
			"fate", metrics.StringerNames(wire.Fates())),
		unsentResidualNorm: r.Gauge("update_residual_norm",
			"Length of what the codec top_k has not sent of the updates of this "+
				"device, which goes with the next one; 0 with any other codec."),
		lostResiduals: r.Counter("update_residuals_lost_total",
			"How often what the codec top_k had not sent was given up, "+
				"because nobody could say what became of the update, or it was of another run or other columns."),
		announcementsStale: r.Gauge("announcements_stale",
			"1 if a round is open, but no new announcement has arrived for three times the maximum duration of a "+
				"round: the coordinator is offline, or the broker withholds its announcements."),
		working: r.Gauge("round_in_progress", "Whether this device is at work in a round (1) or not (0)."),
		lastRound: r.OptionalGauge("last_round_timestamp_seconds",
			"When this device's part in a round last ended, whatever the result, in Unix time."),
		round: r.OptionalGauge("round", "Number of the round in the announcement that is obeyed."),
		ignoredAnnouncements: r.CounterByLabel("announcements_ignored_total",
			"Announcements that were not obeyed: older ones are replays, a conflict is two coordinators with one key.",
			"reason", metrics.ToStrings(round.IgnoreReasons())),
	}
	a.traffic = metrics.SessionTraffic{Metrics: a.Events, Dropped: agent.DroppedMessages}
	a.addLocal(r)
	a.addDevice(r)
	a.addTraffic(r)
	a.addTraining(r)
	a.addPredictions(r)
	a.addMixing(r)
	for _, kind := range metrics.RoundKinds {
		a.initRoundSeries(kind)
	}
	return a
}

// addLocal registers the metrics of the local data.
func (a *Agent) addLocal(r metrics.Registrar) {
	a.fitness = r.GaugeByLabel("task_fitness",
		"Whether the local data fit the announced task: 1 for fit or for the reason why not, 0 for all others; "+
			"all 0 until a task came.",
		"fitness", append([]string{metrics.FitnessOK}, metrics.StringerNames(wire.DeclineReasons())...))
	a.fittingRows = r.OptionalGauge("samples", "Rows of local data that fit the announced task.")
	a.dataLoadDuration = r.OptionalGauge("data_load_seconds",
		"Time that reading the local data for the announced task took.")
	a.dataMetrics = newDataMetrics(r)
}

// addDevice registers those of the rules that spare the device.
func (a *Agent) addDevice(r metrics.Registrar) {
	a.allowedStepShare = r.OptionalGauge("device_share",
		"Share of the local steps that the rules for this device allow now; 0 = it declines. Only with rules.")
	a.deviceDecisions = r.Counters("device_decisions_total",
		"Times that the rules for this device began to spare it (ease) or to bar it (stop), by the rule.",
		"rule", "decision")
	a.load = r.OptionalGauge("device_load_ratio",
		"Average number of programs that ran or wanted to, in the last minute, per core; only with rules.")
	a.temperature = r.OptionalGauge("device_temperature_celsius", "Temperature of the hottest sensor; only with rules.")
	a.battery = r.OptionalGauge("device_battery_ratio", "Level of the emptiest battery, from 0 to 1; only with rules.")
	a.availableMemory = r.OptionalGauge("device_memory_available_bytes",
		"Memory that programs can have without swapping; only with rules.")
	for _, rule := range device.AllRules() {
		a.deviceDecisions.WithLabelValues(string(rule), "stop")
		if rule.CanReduceSteps() {
			a.deviceDecisions.WithLabelValues(string(rule), "ease")
		}
	}
}

// addTraffic registers those of the month's budget.
func (a *Agent) addTraffic(r metrics.Registrar) {
	a.budget = r.OptionalGauge("budget_bytes",
		"Bytes that the uplink may carry in a calendar month, if that is bounded.")
	a.budgetUsed = r.OptionalGauge("budget_used_bytes",
		"Bytes that the uplink has carried in this calendar month, as an operator would count them.")
	a.roundEstimateBytes = r.OptionalGauge("round_estimate_bytes",
		"Bytes that the announced round, or the next one, will move over the uplink, as estimated before joining "+
			"it; only with a budget.")
	a.budgetShortfalls = r.Counter("budget_short_total",
		"Times that the rest of the month's budget became too small for a round.")
}

// addTraining registers those of models and local steps.
func (a *Agent) addTraining(r metrics.Registrar) {
	a.modelVersion = r.OptionalGauge("model_version",
		"Version of the base model that was fetched last: the number of aggregations behind it.")
	a.modelBytes = r.OptionalGauge("model_bytes", "Size of the base model that was fetched last.")
	a.modelFetches = r.Counter("model_fetches_total", "Base models that were fetched.")
	a.riskBefore = r.OptionalGauge("local_risk_before",
		"Risk of the base model on the local data, or on 4096 rows drawn of them, in the last round trained.")
	a.riskAfter = r.OptionalGauge("local_risk_after",
		"Risk on the same rows after the local steps, in the last round trained.")
	a.heldOutScore = metrics.NewHeldOut(r, "the base model of the last round trained")
	a.localSteps = r.OptionalGauge("local_steps", "Local steps E_k that were taken in the last round trained.")
	a.stepEstimate = r.OptionalGauge("step_seconds",
		"Time per local step, as estimated over the last rounds or declared; "+
			"it decides the number of local steps.")
	a.stepCountDecisions = r.CounterByLabel("local_steps_decisions_total",
		"Rounds trained, by what decided the number of local steps: the time budget, a bound, or that no speed "+
			"was measured yet.",
		"reason", metrics.StringerNames(metrics.SizingReasons))
	a.stepTook = r.Histogram("step_duration_seconds", "Time per local step, as measured in each round.",
		stepBuckets)
	a.trainingTook = r.Histogram("training_duration_seconds", "Time that the local steps of a round took.",
		trainingBuckets)
	a.waitingForTraining = r.Gauge("training_waits",
		"Whether training waits (1) or not (0), since the device trains for another of its federations.")
	a.trainingWaitSeconds = r.Counter("training_wait_seconds_total",
		"Time that training has waited while the device trained for other federations, in waits of 0.1 s and more.")
	a.trainingFailures = r.Counter("training_failures_total", "Rounds in which training gave no update.")
}

// addPredictions registers those of the models that the device predicts with.
func (a *Agent) addPredictions(r metrics.Registrar) {
	a.modelInUseVersion = r.OptionalGauge("model_in_use_version", "Version of the model that the device predicts with.")
	a.certificateEnds = r.OptionalGauge("certificate_expires_timestamp_seconds",
		"When the device's certificate for the broker ends.")
	a.inUseSince = r.OptionalGauge("model_in_use_timestamp_seconds",
		"When that model came into use, also before this start, in Unix time.")
	a.modelsJudged = r.CounterByLabel("models_judged_total",
		"New models, by what became of them: taken into use, or not, since they are worse than the one in use on the "+
			"held-out rows, are not finite, could not be judged (blind) or stored (failed).",
		"result", metrics.ToStrings(agent.ModelResults()))
	a.judgedModelRisk = r.OptionalGauge("model_judged_risk",
		"Risk of the newest model that was judged, on the held-out rows.")
	a.inUseRisk = r.OptionalGauge("model_in_use_risk",
		"Risk of the model that was in use when the newest one was judged, on the same rows.")
	a.hookFailures = r.Counter("model_hook_failures_total", "Times that the command predict.hook failed.")
	a.trainerEnds = r.Counter("trainer_ends_total",
		"Times that a program which trains external models ended, or was ended, though it was needed.")
	a.forecastsOK = r.OptionalGauge("forecasts_ok",
		"Whether forecasts are made and published (1), or not (0): rows cannot be read, or the broker is away.")
	a.forecasts = r.Counter("forecasts_total", "Predictions, and residuals, that were published.")
	a.forecastsLost = r.Counter("forecasts_lost_total", "Those that could not be published.")
	a.forecastsFailed = r.Counter("forecasts_failed_total",
		"Rows without a prediction: it would not be finite, or the label is no class.")
	a.anomalies = r.Counter("anomalies_total", "Residuals beyond the usual (predict.anomaly).")
	a.lastForecastAt = r.OptionalGauge("forecast_timestamp_seconds",
		"When the last forecast was published, in Unix time.")
	a.residual = r.OptionalGauge("residual_mean",
		"Mean magnitude of the last 1,000 residuals, in the target's unit or as a probability.")
	a.forecastTook = r.Histogram("forecast_duration_seconds",
		"Time to find a row and to predict, on average over the rows of a look.", stepBuckets)
}

// addMixing registers those of the neighbours.
func (a *Agent) addMixing(r metrics.Registrar) {
	a.appliedFlows = r.Counter("mixing_flows_total", "Flows from neighbours that were applied.")
	a.flowsLate = r.Counter("mixing_flows_late_total",
		"Of these, those applied after the step of their snapshots.")
	a.skippedSnapshots = r.Counter("mixing_skipped_total",
		"Snapshots that were not issued on an edge, since the edge was behind.")
	a.neighbourTimeouts = r.Counter("mixing_waits_total", "Steps whose wait for neighbours ended at its deadline.")
	a.unreconciledEdges = r.Counter("mixing_unreconciled_total",
		"Edges on which, at the end of a round, one end may have applied a flow that the other did not.")
	a.ignoredPeerMessages = r.CounterByLabel("mixing_ignored_total",
		"Messages from the neighbours' broker that were not used, by reason.", "reason",
		metrics.StringerNames(d2d.IgnoreReasons()))
	a.edgesLost = r.CounterByLabel("mixing_edges_ended_total",
		"Edges that the coordinator has taken away for some rounds, by reason.", "reason",
		metrics.StringerNames(wire.EdgeEndReasons()))
	a.mixingTook = r.Histogram("mixing_duration_seconds",
		"Time that the block of a round took, local steps and mixing.", trainingBuckets)
	a.neighbors = r.OptionalGauge("neighbors",
		"Neighbours that this device has chosen in its cell, if it looks for some.")
	a.cellAgents = r.OptionalGauge("cell_agents", "Other devices that were there, in its cell, when it chose them.")
	a.begunBlocks = r.CounterByLabel("mixing_blocks_total",
		"Blocks without an end that were begun, by what they began with.", "from",
		metrics.ToStrings(agent.BlockSources()))
}

// Buckets: a step takes microseconds on a server and seconds on the smallest
// device; training is cut off by a round's deadline.
var (
	stepBuckets     = []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}
	trainingBuckets = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800}
)

func (a *Agent) initRoundSeries(kind wire.RoundKind) {
	for _, result := range round.WorkResults() {
		reasons := []string{metrics.NoReason}
		switch result {
		case round.WorkRefused:
			reasons = metrics.StringerNames(wire.UpdateRefusalReasons())
		case round.WorkDeclined:
			reasons = metrics.StringerNames(wire.DeclineReasons())
		}
		for _, reason := range reasons {
			a.rounds.WithLabelValues(kind.String(), string(result), reason)
		}
	}
}

// CountTraffic counts one message of the session. Unlike Observe it may be called from several goroutines.
func (a *Agent) CountTraffic(t mqtt.ObservedMessage, kind mqtt.TopicKind) { a.traffic.Count(t, kind) }
