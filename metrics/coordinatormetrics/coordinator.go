package coordinatormetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/wire"
)

// Coordinator shows the facts of a coordinator as the coordinator_* metrics.
type Coordinator struct {
	now func() time.Time
	*metrics.Reload
	Events   *metrics.EventMetrics
	traffic  metrics.SessionTraffic
	mlflowOK metrics.OptionalGauge
	runMetrics
	fleetMetrics
	modelMetrics
	uploads
	rollout   rollouts
	stop      stopMetrics
	evaluated evaluationMetrics
	joins     joins
	reports   *reports
}

// New registers the metrics of a coordinator. now is the clock of
// the one timestamp among them.
func New(reg prometheus.Registerer, now func() time.Time) *Coordinator {
	r := metrics.Registrar{Reg: reg, Namespace: "coordinator"}
	events := metrics.NewEventMetrics(r, now, host.Metrics, metrics.TrafficMetrics, coordinator.Metrics,
		round.CoordinatorMetrics, enrol.Metrics, replica.Metrics)
	return &Coordinator{
		now: now, Events: events,
		traffic: metrics.SessionTraffic{Metrics: events, Dropped: coordinator.DroppedMessages},
		Reload:  metrics.NewReload(r, now),
		mlflowOK: r.OptionalGauge("mlflow_ok",
			"Whether rounds are logged to the MLflow server of history.mlflow (1), or "+
				"the last try has failed and they wait (0); absent without one."),
		runMetrics: newRunMetrics(r), fleetMetrics: newFleet(r), modelMetrics: newModelMetrics(r),
		uploads: newUploads(r),
		rollout: newRollouts(r), stop: newStops(r), evaluated: newEvaluated(r),
		joins:   newJoins(r),
		reports: newReports(r, now),
	}
}

// CountTraffic takes in one message of the session. Unlike Observe it may be called
// from several goroutines.
func (c *Coordinator) CountTraffic(t mqtt.ObservedMessage, kind mqtt.TopicKind) {
	c.traffic.Count(t, kind)
}

// SetMLflowOK records whether rounds are logged to an MLflow server. Several goroutines may call it.
func (c *Coordinator) SetMLflowOK(good bool) {
	c.mlflowOK.Set(map[bool]float64{true: 1}[good])
}

// runMetrics has the metrics of the run's progress and of its rounds.
type runMetrics struct {
	phase                                     metrics.GaugeSet
	phaseTook                                 *prometheus.HistogramVec // by phase
	rule                                      metrics.GaugeSet
	serverOptimizer                           metrics.GaugeSet
	epoch                                     metrics.OptionalGauge
	round, attempt                            metrics.OptionalGauge
	foreignAnnouncements                      prometheus.Counter
	foreignRetainedMessages                   prometheus.Counter
	estimatedAgents                           metrics.OptionalGauge
	askedShare                                prometheus.Gauge
	finished                                  prometheus.Gauge
	extendedGatherings                        prometheus.Counter
	rounds                                    *prometheus.CounterVec   // by kind, outcome and reason
	roundTook                                 *prometheus.HistogramVec // by outcome
	closedByDeadline                          prometheus.Counter
	lastRound                                 metrics.OptionalGauge
	lastRoundByFate                           metrics.GaugeSet // participants by result
	selectedParticipants, missingParticipants prometheus.Counter
}

// The outcomes of a round.
const (
	outcomePublished = "published"
	outcomeAbandoned = "abandoned"
)

// The results of a participant, which add up to those that were drawn.
const (
	fateAccepted = "accepted"
	fateMissing  = "missing"
	fateOut      = "out"
)

var roundBuckets = []float64{0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600}

// timedPhases are those whose time the machine decides, not a person.
var timedPhases = []round.CoordinatorPhase{round.CoordinatorIdle, round.CoordinatorGathering,
	round.CoordinatorCollecting, round.CoordinatorClosing}

func newRunMetrics(r metrics.Registrar) runMetrics {
	c := runMetrics{
		phase: r.GaugeByLabel("phase", "The phase of the run: 1 for the present one, 0 for all others.",
			"phase", metrics.ToStrings(round.CoordinatorPhases())),
		phaseTook: r.HistogramByLabel("phase_duration_seconds",
			"Time spent in a phase, observed when it is left; of the last one, and of a pause, it never is.",
			roundBuckets, "phase", metrics.ToStrings(timedPhases)),
		rule: r.GaugeByLabel("aggregation_rule",
			"The rule that makes a round's fold of its updates: 1 for the configured one, 0 for all others.",
			"rule", rule.Names()),
		serverOptimizer: r.GaugeByLabel("server_optimizer",
			"The optimiser that makes the model's step of a fold: 1 for the configured one, 0 for all others.",
			"name", optimizer.Names()),
		epoch: r.OptionalGauge("epoch", "Epoch of this coordinator: 1, and one more after each restore or takeover; "+
			"known when the broker has been heard."),
		foreignAnnouncements: r.Counter("foreign_announcements_total",
			"Announcements signed with this coordinator's key that it has not made: of another coordinator, or "+
				"replayed."),
		foreignRetainedMessages: r.Counter("foreign_retained_messages_total",
			"Messages that the broker retained and nobody reads, which the coordinator has deleted."),
		round: r.OptionalGauge("round", "Number of the round that was opened last; abandoned ones count."),
		attempt: r.OptionalGauge("round_attempt",
			"Attempt at which this round was opened: more than 1 after a restart or a longer gathering."),
		askedShare: r.Gauge("respond_share",
			"Share of the agents that were asked for a hello before the round that was opened last: 1 = all."),
		estimatedAgents: r.OptionalGauge("agents_estimated",
			"Agents that would say hello if all were asked, by those that were heard; known where a share is asked."),
		finished: r.Gauge("run_finished", "Whether all rounds of the run are done (1) or not (0)."),
		extendedGatherings: r.Counter("gatherings_extended_total",
			"Times that gathering went on because too few agents had come."),
		rounds: r.Counters("rounds_total",
			"Rounds that ended, by kind, outcome, and the reason for abandoning: quorum is too few updates, fold an "+
				"aggregate that is no model, rule fewer updates than aggregation.rule needs, model a base model and "+
				"spool an update that the coordinator's disk has lost or changed, asked a command.",
			"kind", "outcome", "reason"),
		roundTook: r.HistogramByLabel("round_duration_seconds",
			"Time from the announcement of a round to its end, by outcome.", roundBuckets,
			"outcome", []string{outcomePublished, outcomeAbandoned}),
		closedByDeadline: r.Counter("rounds_closed_by_deadline_total",
			"Published rounds that were closed by their deadline, with updates still missing."),
		lastRound: r.OptionalGauge("last_round_timestamp_seconds", "When a round was last published, in Unix time."),
		lastRoundByFate: r.GaugeByLabel("last_round_participants",
			"Participants of the round that ended last, by fate: accepted, missing (no result came) or out (declined "+
				"or refused).",
			"fate", []string{fateAccepted, fateMissing, fateOut}),
		selectedParticipants: r.Counter("participants_selected_total",
			"Agents drawn for a round, counted when the round ends."),
		missingParticipants: r.Counter("participants_missing_total",
			"Participants that gave no result at all, counted when the round ends."),
	}
	c.phase.SetActive(string(round.CoordinatorIdle)) // the first phase
	for _, kind := range metrics.RoundKinds {
		c.rounds.WithLabelValues(kind.String(), outcomePublished, metrics.NoReason)
		for _, reason := range round.AbandonReasons() {
			c.rounds.WithLabelValues(kind.String(), outcomeAbandoned, string(reason))
		}
	}
	return c
}

// fleetMetrics has the metrics of the agents that are present and of those that take part.
type fleetMetrics struct {
	enrolled       metrics.OptionalGauge
	eligible       prometheus.Gauge
	agentsAhead    prometheus.Gauge
	eligibleHellos prometheus.Counter
	departedAgents *prometheus.CounterVec // by reason
	unfit          *prometheus.CounterVec // by reason

	sidelinedNow    prometheus.Gauge
	sidelined       *prometheus.CounterVec // by reason
	readmittedEarly prometheus.Counter
	largeRowCounts  prometheus.Counter

	joined   prometheus.Counter
	declined *prometheus.CounterVec // by reason
	replaced prometheus.Counter

	meshAgents, meshEdges, meshParts        prometheus.Gauge
	meshEigenvalue, meshEigenvalueRatio     metrics.OptionalGauge
	medianMeshDistance                      metrics.OptionalGauge
	edgesEnded                              *prometheus.CounterVec // by reason
	accepted, aggregatedUpdates, savedBytes prometheus.Counter
	refused, leftOut, clipped               *prometheus.CounterVec // by reason
	acceptanceDelay                         prometheus.Observer
	norm, localSteps                        prometheus.Observer
}

// Buckets: the norm of an update depends on the model, so they span six
// decades; E_k is a count.
var (
	normBuckets  = []float64{1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 1000}
	stepsBuckets = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000}
)

func newFleet(r metrics.Registrar) fleetMetrics {
	return fleetMetrics{
		enrolled: r.OptionalGauge("agents_enrolled", "Agents in the list of keys: those that may take part."),
		eligible: r.Gauge("agents_eligible",
			"Agents K that are there, fit for the task and may be drawn, as of the last fact that told."),
		agentsAhead: r.Gauge("agents_ahead",
			"Agents that obey a later place than this coordinator's, and so do not obey it."),
		eligibleHellos: r.Counter("agents_counted_total",
			"Hellos by which an agent became eligible, again after each of its starts."),
		departedAgents: r.CounterByLabel("agents_left_total",
			"Agents no longer counted: offline ones said so, the broker missed lost ones, silent ones did not answer "+
				"an invitation, revoked ones are no longer in the list.",
			"reason", metrics.ToStrings(round.LeaveReasons())),
		unfit: r.CounterByLabel("agents_unfit_total",
			"Hellos by which an agent became unable to do the task, by reason.",
			"reason", metrics.StringerNames(wire.DeclineReasons())),
		sidelinedNow: r.Gauge("agents_sitting_out",
			"Agents that spoiled a round and were not drawn for it in the round that opened last; they are not in K."),
		sidelined: r.CounterByLabel("agents_sidelined_total",
			"Times that an agent began to sit out the next draws: silent ones were drawn and had sent no update at "+
				"the deadline, those of the fold spoiled the model.",
			"reason", metrics.ToStrings(round.SidelineReasons())),
		readmittedEarly: r.Counter("agents_readmitted_early_total",
			"Agents that were to sit out longer, and were drawn since fewer than gather.minimum others were there."),
		largeRowCounts: r.Counter("agents_samples_large_total",
			"Agents that began to report more than five times the median number of rows, with weights samples; "+
				"round.robust caps their weights there."),
		joined: r.Counter("participants_joined_total", "Participants that went to work."),
		meshAgents: r.Gauge("mesh_agents",
			"Agents that can mix with neighbours, in the last round in which agents mix."),
		meshEdges: r.Gauge("mesh_edges", "Edges between them."),
		meshParts: r.Gauge("mesh_parts",
			"Connected parts of their graph; with more than one, the parts mix each by itself."),
		meshEigenvalue: r.OptionalGauge("mesh_second_eigenvalue",
			"|λ₂| of E[WWᵀ] when no message is lost; 1 when the graph is not connected."),
		meshEigenvalueRatio: r.OptionalGauge("mesh_alpha",
			"|λ₂|/(1−|λ₂|), the connectivity of feddec; no series when the graph is not connected, since it is "+
				"infinite."),
		medianMeshDistance: r.OptionalGauge("mesh_distance",
			"Median of the mean distances ‖x_j − x_i‖ that agents have measured on their edges in the last block; "+
				"with task.mixing.clip only."),
		edgesEnded: r.CounterByLabel("mesh_edges_ended_total",
			"Edges that are left out for some rounds, by reason.", "reason",
			metrics.StringerNames(wire.EdgeEndReasons())),

		replaced: r.Counter("uploaders_replaced_total",
			"Agents that were drawn to send and will not, where agents mix; others were drawn in their place."),
		declined: r.CounterByLabel("participants_declined_total",
			"Participants that did not take part, by the reason they gave.",
			"reason", metrics.StringerNames(wire.DeclineReasons())),
		accepted:          r.Counter("updates_accepted_total", "Updates that passed all checks and are held."),
		aggregatedUpdates: r.Counter("updates_folded_total", "Updates that are in a model which is on disk."),
		savedBytes: r.Counter("update_bytes_saved_total",
			"Bytes that accepted updates would have had more without task.codec."),
		refused: r.CounterByLabel("updates_refused_total",
			"Updates that were not taken, by reason; a refused update may be offered again and refused again.",
			"reason", metrics.StringerNames(wire.UpdateRefusalReasons())),
		leftOut: r.CounterByLabel("updates_left_out_total",
			"Accepted updates that the model was made without, or that no model could be made with: it would not "+
				"have been finite, its risk would have exploded on held-out data or at the next participants, one "+
				"norm outweighs all others, or is above refuse_above; or the rule has chosen others, as krum does in "+
				"each round.",
			"reason", metrics.ToStrings(coordinator.LeaveOutReasons())),
		clipped: r.CounterByLabel("updates_clipped_total",
			"Updates of which a part counts, by the bound in aggregation that they are above: clip, clip_above, or "+
				"the radius of centered_clipping.",
			"reason", metrics.ToStrings(coordinator.ClipReasons())),
		acceptanceDelay: r.Histogram("update_accepted_after_seconds",
			"Time from the announcement of a round to the acceptance of an update.", roundBuckets),
		norm: r.Histogram("update_norm", "Euclidean norm of the accepted updates of training rounds.",
			normBuckets),
		localSteps: r.Histogram("local_steps", "Local steps E_k behind the accepted updates of training rounds.",
			stepsBuckets),
	}
}
