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

// Tracking says where and as what rounds are logged to an MLflow tracking server.
type Tracking struct {
	URL        string // http://host:port, without /api
	Token      string // sent as a bearer token; "" = none
	Experiment string // made if it is not there
	Federation string
	Version    string // of the program
	// Task returns the applied task and the number of its run. MLflow has it as the run's parameters.
	Task func() (run wire.RunID, keys []config.Setting)
	HTTP *http.Client
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

// pointKey is the place of a point among those of its metric.
type pointKey struct{ time, step int64 }

// keyValue is a parameter or a tag.
type keyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// MLflow logs training rounds to an MLflow server, as they are in TensorBoard's files: a run of MLflow for each run, a
// metric for each number, with the model's version as the step. Nothing that the server has is logged again: it is
// asked for it when a run begins here, and after Again.
type MLflow struct {
	server        mlflowClient
	tracking      *Tracking
	experiment    string // its id; "" = not known yet
	run           *trackedRun
	previousPoint pointKey // of the line before
	batch         []metricPoint
}

// trackedRun is a run that is logged.
type trackedRun struct {
	number      wire.RunID
	id          string
	deleted     bool  // by a person, so it is left alone
	finished    bool  // as the server has it
	ended       bool  // as the history has it
	lastRoundAt int64 // time of its newest round, Unix milliseconds
	// the server has these metrics of a round, by their bits; nil = none of what comes
	loggedMetrics map[pointKey]uint16
	serverQueried bool // there is what the server has
}

// NewMLflow returns a sink that speaks to the server until ctx ends.
func NewMLflow(ctx context.Context, t *Tracking) *MLflow {
	return &MLflow{server: mlflowClient{ctx, t}, tracking: t}
}

// Open finds the experiment, or makes it, unless that has succeeded before.
func (m *MLflow) Open() (err error) {
	if m.experiment == "" {
		m.experiment, err = m.server.findOrCreateExperiment(m.tracking.Experiment)
	}
	return err
}

// ForgetServerState has the server asked what it has before more is logged: an earlier call has failed, perhaps after
// it was carried out. The rounds since the last Flush that succeeded come again.
func (m *MLflow) ForgetServerState() {
	m.batch, m.previousPoint, m.run = nil, pointKey{}, nil
}

// MarkCaughtUp says that the rounds that come now are new: the server has none of them.
func (m *MLflow) MarkCaughtUp() {
	if m.run != nil {
		m.run.loggedMetrics = nil
	}
}

// Round implements Sink. Rounds are sent by the thousand metrics, and by Flush.
func (m *MLflow) Round(e *runs.HistoryEntry) error {
	if !hasModel(e) {
		if m.run != nil && m.run.number == e.Run && e.StopReason != "" {
			m.run.ended = true
		}
		return nil // it has no model of its own
	}
	at := pointKey{step: int64(e.Version)}
	if !e.Time.IsZero() {
		at.time = e.Time.UnixMilli()
	}
	if err := m.begin(e.Run, at); err != nil || m.run.deleted {
		return err
	}
	if e.Evaluation == nil {
		m.run.ended = e.StopReason != ""
		if at == m.previousPoint { // its line once more, with the reason of the run's end
			return nil
		}
		m.previousPoint = at
	}
	m.run.lastRoundAt = at.time
	all := metrics(e)
	if len(m.batch)+len(all) > maxBatchMetrics {
		if err := m.Flush(); err != nil {
			return err
		}
	}
	for i, x := range all {
		if x.value != nil && m.run.loggedMetrics[at]&(1<<i) == 0 {
			m.batch = append(m.batch, metricPoint{x.name, *x.value, at.time, at.step})
		}
	}
	return nil
}

// begin makes a run the one that is logged. The one before is over.
func (m *MLflow) begin(number wire.RunID, at pointKey) (err error) {
	if r := m.run; r != nil && r.number != number {
		r.ended = true
		if err := m.Flush(); err != nil {
			return err
		}
		m.run, m.previousPoint = nil, pointKey{}
	}
	if m.run == nil {
		m.run = &trackedRun{number: number}
	}
	if m.run.serverQueried {
		return nil
	}
	if err := m.Open(); err != nil {
		return err
	}
	found, err := m.server.run(m.experiment, m.tags())
	if err == nil && found == nil {
		found, err = m.server.begin(m.experiment, fmt.Sprintf("%s/%d", m.tracking.Federation, number), at.time,
			m.tags())
	}
	if err != nil {
		return err
	}
	m.run.id, m.run.deleted = found.Info.ID, found.Info.Stage == "deleted"
	m.run.finished = found.Info.Status == statusFinished
	if !m.run.deleted {
		if m.run.loggedMetrics, err = m.fetchLoggedMetrics(found); err == nil {
			err = m.params(found)
		}
	}
	m.run.serverQueried = err == nil
	return err
}

// tags are those by which a run is found again.
func (m *MLflow) tags() []keyValue {
	return []keyValue{{"fedmesh.federation", m.tracking.Federation},
		{"fedmesh.run", strconv.FormatUint(uint64(m.run.number), 10)}, {"fedmesh.version", m.tracking.Version}}
}

// fetchLoggedMetrics asks for what the server has of the run.
func (m *MLflow) fetchLoggedMetrics(found *serverRun) (map[pointKey]uint16, error) {
	has := map[pointKey]uint16{}
	for i, x := range metrics(&runs.HistoryEntry{}) {
		for _, known := range found.Data.Metrics {
			if known.Key != x.name {
				continue
			}
			for at, err := range m.server.points(m.run.id, x.name) {
				if err != nil {
					return nil, err
				}
				has[at] |= 1 << i
			}
		}
	}
	return has, nil
}

// params logs the applied task's keys if it is that of the run. A server keeps the first value of each.
func (m *MLflow) params(found *serverRun) error {
	number, keys := m.tracking.Task()
	if number != m.run.number {
		return nil
	}
	known := map[string]bool{}
	for _, p := range found.Data.Params {
		known[p.Key] = true
	}
	var params []keyValue
	send := func() error {
		err := m.server.log(m.run.id, nil, params)
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
		if params = append(params, keyValue{k.Key, value}); len(params) == maxBatchParams {
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
func (m *MLflow) Flush() error {
	r := m.run
	if r == nil || r.deleted {
		return nil
	}
	if len(m.batch) > 0 {
		if err := m.server.log(r.id, m.batch, nil); err != nil {
			return err
		}
		m.batch = m.batch[:0]
	}
	if r.ended == r.finished {
		return nil
	}
	if err := m.server.update(r.id, r.ended, r.lastRoundAt); err != nil {
		return err
	}
	r.finished = r.ended
	return nil
}

// Close implements Sink.
func (m *MLflow) Close() error { return m.Flush() }

// callTime bounds a request: a server that does not answer is as good as one that is away.
const callTime = 30 * time.Second
