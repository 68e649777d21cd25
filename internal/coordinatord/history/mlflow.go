package history

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/wire"
)

// MLflowTracking configures the logging of rounds to an MLflow tracking server.
type MLflowTracking struct {
	URL            string // http://host:port, without /api
	Token          string // bearer token; "" for none
	Experiment     string // name of the experiment, created if missing
	Federation     string
	ProgramVersion string // version of the coordinator program
	// ReadAppliedTask returns the settings of the applied task and the number of its run. The settings become
	// parameters of the MLflow run.
	ReadAppliedTask func() (run wire.RunID, keys []config.Setting)
	HTTP            *http.Client
}

// The limits of a request to runs/log-batch (https://mlflow.org/docs/latest/rest-api.html#log-batch) and of a
// parameter's value.
const (
	maxBatchMetrics = 1000
	maxBatchParams  = 100
	maxParamBytes   = 6000 // maximum number of bytes of a parameter's value
)

// metricPoint is one value of a metric. The server stores it with its step and time, but without an identifier.
type metricPoint struct {
	Key   string  `json:"key"`
	Value float64 `json:"value"`
	Time  int64   `json:"timestamp"` // Unix time in milliseconds
	Step  int64   `json:"step"`
}

// metricPointPosition identifies a value of a metric by its time (Unix milliseconds) and step.
type metricPointPosition struct{ time, step int64 }

type tagOrParam struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// MLflowSink logs training rounds to an MLflow server. Each run is an MLflow run, each number is a metric, and the
// model version is the step. No value is logged twice: the sink queries the server for existing values at the start of
// a run and after ForgetServerState.
type MLflowSink struct {
	client           mlflowClient
	tracking         *MLflowTracking
	experimentID     string // id of the experiment; "" if not known yet
	run              *trackedRun
	previousPosition metricPointPosition // position of the previous history entry
	batch            []metricPoint
}

// trackedRun is the run that is being logged.
type trackedRun struct {
	number             wire.RunID
	mlflowRunID        string
	isDeletedOnServer  bool  // the run was deleted by an operator and is no longer logged
	isFinishedOnServer bool  // the run is finished according to the server
	isEndedInHistory   bool  // the run is finished according to the history
	lastRoundAt        int64 // time of the newest round in Unix milliseconds
	// loggedMetricBitsByPoint is a bit set per point of the metrics that the server already has. It is nil if the
	// server has none of the following rounds.
	loggedMetricBitsByPoint map[metricPointPosition]uint16
	isServerQueried         bool // the metrics on the server have been queried
}

// NewMLflow returns a sink that uses the server until ctx ends.
func NewMLflow(ctx context.Context, t *MLflowTracking) *MLflowSink {
	return &MLflowSink{client: mlflowClient{ctx, t}, tracking: t}
}

// OpenExperiment finds or creates the experiment, unless an earlier call succeeded.
func (m *MLflowSink) OpenExperiment() (err error) {
	if m.experimentID == "" {
		m.experimentID, err = m.client.findOrCreateExperiment(m.tracking.Experiment)
	}
	return err
}

// ForgetServerState makes the sink query the server again before it logs more. It is called after a request failed,
// since the server may have executed it. The caller must write the rounds since the last successful Flush again.
func (m *MLflowSink) ForgetServerState() {
	m.batch, m.previousPosition, m.run = nil, metricPointPosition{}, nil
}

// MarkCaughtUp records that all following rounds are new to the server.
func (m *MLflowSink) MarkCaughtUp() {
	if m.run != nil {
		m.run.loggedMetricBitsByPoint = nil
	}
}

// WriteRound implements Sink. Metrics are sent in batches of at most 1000, and by Flush.
func (m *MLflowSink) WriteRound(e *runs.HistoryEntry) error {
	if !hasModelMetrics(e) {
		if m.run != nil && m.run.number == e.Run && e.StopReason != "" {
			m.run.isEndedInHistory = true
		}
		return nil // an entry without metrics, such as an abandoned round
	}
	at := metricPointPosition{step: int64(e.Version)}
	if !e.Time.IsZero() {
		at.time = e.Time.UnixMilli()
	}
	if err := m.beginTrackedRun(e.Run, at); err != nil || m.run.isDeletedOnServer {
		return err
	}
	if e.Evaluation == nil {
		m.run.isEndedInHistory = e.StopReason != ""
		if at == m.previousPosition { // the same entry again, with the reason why the run ended
			return nil
		}
		m.previousPosition = at
	}
	m.run.lastRoundAt = at.time
	all := roundMetrics(e)
	if len(m.batch)+len(all) > maxBatchMetrics {
		if err := m.Flush(); err != nil {
			return err
		}
	}
	for i, x := range all {
		if x.value != nil && m.run.loggedMetricBitsByPoint[at]&(1<<i) == 0 {
			m.batch = append(m.batch, metricPoint{x.name, *x.value, at.time, at.step})
		}
	}
	return nil
}

// beginTrackedRun makes the given run the current one, and creates it on the MLflow server if necessary. It marks the
// previous run as ended.
func (m *MLflowSink) beginTrackedRun(number wire.RunID, at metricPointPosition) (err error) {
	if r := m.run; r != nil && r.number != number {
		r.isEndedInHistory = true
		if err := m.Flush(); err != nil {
			return err
		}
		m.run, m.previousPosition = nil, metricPointPosition{}
	}
	if m.run == nil {
		m.run = &trackedRun{number: number}
	}
	if m.run.isServerQueried {
		return nil
	}
	if err := m.OpenExperiment(); err != nil {
		return err
	}
	found, err := m.client.findRun(m.experimentID, m.runTags())
	if err == nil && found == nil {
		found, err = m.client.createRun(m.experimentID, fmt.Sprintf("%s/%d", m.tracking.Federation, number), at.time,
			m.runTags())
	}
	if err != nil {
		return err
	}
	m.run.mlflowRunID, m.run.isDeletedOnServer = found.Info.ID, found.Info.Stage == "deleted"
	m.run.isFinishedOnServer = found.Info.Status == statusFinished
	if !m.run.isDeletedOnServer {
		if m.run.loggedMetricBitsByPoint, err = m.fetchLoggedMetrics(found); err == nil {
			err = m.logRunParams(found)
		}
	}
	m.run.isServerQueried = err == nil
	return err
}

// runTags returns the tags of the MLflow run. The first two tags, federation and run number, identify it.
func (m *MLflowSink) runTags() []tagOrParam {
	return []tagOrParam{{"fedmesh.federation", m.tracking.Federation},
		{"fedmesh.run", strconv.FormatUint(uint64(m.run.number), 10)}, {"fedmesh.version", m.tracking.ProgramVersion}}
}

// fetchLoggedMetrics returns, as a bit set per point, the metrics of the run that the server already has.
func (m *MLflowSink) fetchLoggedMetrics(found *serverRun) (map[metricPointPosition]uint16, error) {
	has := map[metricPointPosition]uint16{}
	for i, x := range roundMetrics(&runs.HistoryEntry{}) {
		for _, known := range found.Data.Metrics {
			if known.Key != x.name {
				continue
			}
			for at, err := range m.client.metricPositions(m.run.mlflowRunID, x.name) {
				if err != nil {
					return nil, err
				}
				has[at] |= 1 << i
			}
		}
	}
	return has, nil
}

// logRunParams sends the settings of the applied task as parameters if the task belongs to this run. MLflow keeps the
// first value of each parameter.
func (m *MLflowSink) logRunParams(found *serverRun) error {
	number, keys := m.tracking.ReadAppliedTask()
	if number != m.run.number {
		return nil
	}
	known := map[string]bool{}
	for _, p := range found.Data.Params {
		known[p.Key] = true
	}
	var params []tagOrParam
	send := func() error {
		err := m.client.logBatch(m.run.mlflowRunID, nil, params)
		params = params[:0]
		return err
	}
	for _, k := range keys {
		if known[k.Key] {
			continue
		}
		value := k.Value
		if len(value) > maxParamBytes {
			value = value[:maxParamBytes-len("...")] + "..."
		}
		if params = append(params, tagOrParam{k.Key, value}); len(params) == maxBatchParams {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if len(params) == 0 {
		return nil
	}
	return send()
}

// Flush sends the pending metrics and the status of the run.
func (m *MLflowSink) Flush() error {
	r := m.run
	if r == nil || r.isDeletedOnServer {
		return nil
	}
	if len(m.batch) > 0 {
		if err := m.client.logBatch(r.mlflowRunID, m.batch, nil); err != nil {
			return err
		}
		m.batch = m.batch[:0]
	}
	if r.isEndedInHistory == r.isFinishedOnServer {
		return nil
	}
	if err := m.client.updateRunStatus(r.mlflowRunID, r.isEndedInHistory, r.lastRoundAt); err != nil {
		return err
	}
	r.isFinishedOnServer = r.isEndedInHistory
	return nil
}

// Close implements Sink.
func (m *MLflowSink) Close() error { return m.Flush() }

// callTime is the timeout of a request.
const callTime = 30 * time.Second
