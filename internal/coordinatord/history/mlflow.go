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

// MLflowTracking says where and as what rounds are logged to an MLflow tracking server.
type MLflowTracking struct {
	URL            string // http://host:port, without /api
	Token          string // sent as a bearer token; "" = none
	Experiment     string // made if it is not there
	Federation     string
	ProgramVersion string // of the program
	// ReadAppliedTask returns the applied task and the number of its run. MLflow has it as the run's parameters.
	ReadAppliedTask func() (run wire.RunID, keys []config.Setting)
	HTTP            *http.Client
}

// The limits of a request to runs/log-batch (https://mlflow.org/docs/latest/rest-api.html#log-batch), and of a
// parameter's value.
const (
	maxBatchMetrics = 1000
	maxBatchParams  = 100
	maxParamBytes   = 6000 // bytes
)

// metricPoint is a value of a metric. The server has the step and the time with it, and no other key.
type metricPoint struct {
	Key   string  `json:"key"`
	Value float64 `json:"value"`
	Time  int64   `json:"timestamp"` // Unix milliseconds
	Step  int64   `json:"step"`
}

// metricPointPosition is the place of a point among those of its metric.
type metricPointPosition struct{ time, step int64 }

// tagOrParam is a parameter or a tag.
type tagOrParam struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// MLflowSink logs training rounds to an MLflow server, as they are in TensorBoard's files: a run of MLflow for
// each run, a metric for each number, with the model's version as the step. Nothing that the server has is logged
// again: it is asked for it when a run begins here, and after Again.
type MLflowSink struct {
	client           mlflowClient
	tracking         *MLflowTracking
	experimentID     string // its id; "" = not known yet
	run              *trackedRun
	previousPosition metricPointPosition // of the line before
	batch            []metricPoint
}

// trackedRun is a run that is logged.
type trackedRun struct {
	number             wire.RunID
	mlflowRunID        string
	isDeletedOnServer  bool  // by a person, so it is left alone
	isFinishedOnServer bool  // as the server has it
	isEndedInHistory   bool  // as the history has it
	lastRoundAt        int64 // time of its newest round, Unix milliseconds
	// the server has these metrics of a round, by their bits; nil = none of what comes
	loggedMetricBitsByPoint map[metricPointPosition]uint16
	isServerQueried         bool // there is what the server has
}

// NewMLflow returns a sink that speaks to the server until ctx ends.
func NewMLflow(ctx context.Context, t *MLflowTracking) *MLflowSink {
	return &MLflowSink{client: mlflowClient{ctx, t}, tracking: t}
}

// OpenExperiment finds the experiment, or makes it, unless that has succeeded before.
func (m *MLflowSink) OpenExperiment() (err error) {
	if m.experimentID == "" {
		m.experimentID, err = m.client.findOrCreateExperiment(m.tracking.Experiment)
	}
	return err
}

// ForgetServerState has the server asked what it has before more is logged: an earlier call has failed, perhaps after
// it was carried out. The rounds since the last Flush that succeeded come again.
func (m *MLflowSink) ForgetServerState() {
	m.batch, m.previousPosition, m.run = nil, metricPointPosition{}, nil
}

// MarkCaughtUp says that the rounds that come now are new: the server has none of them.
func (m *MLflowSink) MarkCaughtUp() {
	if m.run != nil {
		m.run.loggedMetricBitsByPoint = nil
	}
}

// WriteRound implements Sink. Rounds are sent by the thousand metrics, and by Flush.
func (m *MLflowSink) WriteRound(e *runs.HistoryEntry) error {
	if !hasModelMetrics(e) {
		if m.run != nil && m.run.number == e.Run && e.StopReason != "" {
			m.run.isEndedInHistory = true
		}
		return nil // it has no model of its own
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
		if at == m.previousPosition { // its line once more, with the reason of the run's end
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

// beginTrackedRun makes a run the one that is logged. The one before is over.
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

// runTags are those by which a run is found again.
func (m *MLflowSink) runTags() []tagOrParam {
	return []tagOrParam{{"fedmesh.federation", m.tracking.Federation},
		{"fedmesh.run", strconv.FormatUint(uint64(m.run.number), 10)}, {"fedmesh.version", m.tracking.ProgramVersion}}
}

// fetchLoggedMetrics asks for what the server has of the run.
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

// logRunParams logs the applied task's keys if it is that of the run. A server keeps the first value of each.
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

// Flush logs what has come so far, and whether the run is over.
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

// callTime bounds a request: a server that does not answer is as good as one that is away.
const callTime = 30 * time.Second
