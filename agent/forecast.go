package agent

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// Forecast is the prediction of a row of the device's own source, or what its label has shown later.
type Forecast struct {
	Time    time.Time // of the row; zero if rows have none
	Target  modelfile.PredictionTarget
	Model   string  // RUN/VERSION
	Value   float64 // as learner.Prediction has it
	Classes []float64
	// Residual is the label less the prediction, of classes 1 less the probability of the label's; nil before the label
	// is there. The prediction is that of the model in use by then. Of an autoencoder it is the prediction itself: the
	// error with which the model gives the row back.
	Residual     *float64
	AnomalyScore float64 // how many times the usual bound the residual is; 0 = that is not known
	Anomaly      bool    // Score is above 1
}

// TargetTime returns the time that the prediction is for; zero if rows have no time.
func (f *Forecast) TargetTime() time.Time {
	if f.Time.IsZero() {
		return f.Time
	}
	return f.Time.Add(f.Target.Horizon)
}

// forecaster predicts from the rows of a source. Jobs use it, one after another.
type forecaster struct {
	model                *modelfile.Model
	predictionTarget     modelfile.PredictionTarget // of the model
	predictor            *learner.Predictor[float32]
	rowsBeforeTargets    *rowFollower // rows whose targets may not be known yet; nil if the model has no target
	rowsWithTargets      *rowFollower // rows with targets
	recentResiduals      residualHistory
	paired               modelComparison
	unpublishedForecasts []Forecast // that wait until the connection has room
	publishErr           error      // why the last forecast was not published
	lastReportedError    string     // the last error that was told
}

// rowFollower is the rows of a source, of which those up to seen have been dealt with.
type rowFollower struct {
	rows          data.Rows
	snapshotTaken bool
	seenRows      int
	newestRowTime int64
	failed        error // the last snapshot
}

// newRows returns the view, and the place of its first row that has come since. old tells that it is the first view,
// whose rows were there before.
func (f *rowFollower) newRows() (v data.View, from int, old bool, err error) {
	if (f.snapshotTaken || f.failed != nil) && !f.rows.Changed() {
		return v, 0, false, f.failed
	}
	if v, f.failed = f.rows.Snapshot(); f.failed != nil {
		return v, 0, false, f.failed
	}
	n := v.Rows.Len()
	switch {
	case !f.snapshotTaken:
		old = true
	case v.Times != nil:
		from = v.Times.Find(f.newestRowTime + 1)
	case v.RenewalReason != "":
		from = n
	default:
		from = min(f.seenRows, n)
	}
	f.snapshotTaken, f.seenRows = true, n
	if v.Times != nil {
		f.newestRowTime = max(f.newestRowTime, v.Times.At(n-1))
	}
	return v, from, old, nil
}

// use has the forecaster predict with a model. Rows are followed anew if it wants others.
func (f *forecaster) use(source data.Source, m *modelfile.Model) error {
	if f.model == m {
		return nil
	}
	by, err := m.Predictor()
	if err != nil {
		return err
	}
	if f.model == nil || !f.model.ComparableWith(m) {
		want := data.RowQuery{Features: m.Features, Target: m.Target, Recipe: m.Recipe}
		f.rowsBeforeTargets, f.rowsWithTargets, f.recentResiduals = nil, &rowFollower{rows: source.Open(want)},
			residualHistory{}
		if m.Target != "" {
			if want.BeforeTargets = m.Recipe != nil; !want.BeforeTargets {
				want.Target = "" // a line of a file, with or without the target
			}
			f.rowsBeforeTargets = &rowFollower{rows: source.Open(want)}
		}
	}
	f.model, f.predictionTarget, f.predictor, f.paired = m, m.PredictionTarget(), by, modelComparison{}
	return nil
}

// modelComparison is the residuals of the model in use and of another one, on the same rows, since both are used.
type modelComparison struct {
	candidate, reference wire.ModelName
	// of the other model; nil without one, or if it predicts something else
	referencePredictor                           *learner.Predictor[float32]
	rows                                         uint32
	candidateSquaredError, referenceSquaredError float64 // sums of squares
}

// setComparedModel has another model that is kept predict beside the one in use; with its zero value none does.
// Predictions go on without it if it cannot be read.
func (f *forecaster) setComparedModel(c *Config, with wire.ModelName) {
	if f.paired.reference == with {
		return
	}
	f.paired = modelComparison{candidate: f.model.ModelName(), reference: with}
	if !with.Present() {
		return
	}
	m, err := findKeptModel(c, with)
	if err == nil && m != nil && m.ComparableWith(f.model) {
		f.paired.referencePredictor, err = m.Predictor()
	}
	if err != nil {
		c.Logger.Warn("the released model cannot be read, so the candidate is compared with nothing", "err", err)
	}
}

// add takes a row whose label has come. One of which a prediction is not finite does not count.
func (p *modelComparison) add(x []float32, y float32, r float64) {
	if p.referencePredictor == nil {
		return
	}
	other := p.referencePredictor.Predict(x)
	old, err := residual(other.Value, other.ClassProbabilities, y)
	if err == nil && old-old == 0 && p.rows < math.MaxUint32 {
		p.rows++
		p.candidateSquaredError += r * r
		p.referenceSquaredError += old * old
	}
}

// forecastNewRows returns the forecasts of all rows that have come since the last call, and how many rows have none; of
// rows that were there before the first call only the newest is told. anomaly is the share of the residuals that is
// usual.
//
// A row made of readings has a second forecast, with the residual, when its target is known. A line of a file has one
// forecast: with a residual if the line has a target. Lines are identified by their times, so a line without a target
// has a forecast only if data.time is set.
func (f *forecaster) forecastNewRows(anomaly float64) (all []Forecast, bad int, err error) {
	lines := f.model.Recipe == nil
	if f.rowsBeforeTargets != nil && !lines {
		if all, bad, err = f.forecastUnlabelledRows(); err != nil {
			return nil, 0, err
		}
	}
	v, from, old, err := f.rowsWithTargets.newRows()
	if lines && v.Rows != nil && v.Times == nil {
		f.rowsBeforeTargets = nil
	}
	if f.rowsBeforeTargets != nil && lines {
		all, _, _ = f.forecastUnlabelledRows() // an error concerns the lines with targets, too
		all = slices.DeleteFunc(all, func(c Forecast) bool {
			return c.Time.IsZero() || v.Rows != nil && v.Times.Has(c.Time.UnixNano())
		})
	}
	if err != nil {
		if len(all) > 0 || f.rowsBeforeTargets != nil && !lines {
			err = nil // labels come later
		}
		return all, bad, err
	}
	if old {
		from = max(0, v.Rows.Len()-maxResiduals) // to know what is usual
	}
	told, wrong := f.forecastRows(v, from,
		func(x []float32, y float32) (Forecast, error) { return f.labelled(x, y, anomaly, old) })
	switch {
	case old && (len(all) > 0 || f.rowsBeforeTargets != nil && !lines): // the newest row has no target yet
		told = nil
	case old:
		told = told[max(0, len(told)-1):]
	}
	return append(all, told...), bad + wrong, nil
}

// forecastUnlabelledRows returns the forecasts of the new rows whose targets may not be known yet.
func (f *forecaster) forecastUnlabelledRows() (all []Forecast, bad int, err error) {
	v, from, old, err := f.rowsBeforeTargets.newRows()
	if err != nil || v.Rows == nil {
		return nil, 0, err
	}
	if old {
		from = v.Rows.Len() - 1
	}
	all, bad = f.forecastRows(v, from, func(x []float32, _ float32) (Forecast, error) { return f.forecast(x) })
	return all, bad, nil
}

// forecastRows returns the forecasts of the rows of a view from one on.
func (f *forecaster) forecastRows(v data.View, from int, of func(x []float32, y float32) (Forecast,
	error)) (all []Forecast,
	bad int) {
	if v.Rows == nil {
		return nil, 0
	}
	for i := from; i < v.Rows.Len(); i++ {
		c, err := of(v.Rows.Row(i))
		if err != nil {
			bad++
			continue
		}
		if v.Times != nil {
			c.Time = time.Unix(0, v.Times.At(i)).UTC()
		}
		all = append(all, c)
	}
	return all, bad
}

func (f *forecaster) forecast(x []float32) (Forecast, error) {
	p := f.predictor.Predict(x)
	if p.Value-p.Value != 0 {
		return Forecast{}, fmt.Errorf("the prediction is %v", p.Value)
	}
	return Forecast{Target: f.predictionTarget, Model: f.model.DisplayName(), Value: p.Value,
		Classes: slices.Clone(p.ClassProbabilities)}, nil
}

// residual is the label less the prediction or, of classes, 1 less the probability of the label's.
func residual(value float64, classes []float64, y float32) (float64, error) {
	n := len(classes)
	if n == 0 {
		return float64(y) - value, nil
	}
	class := max(int(y), 0) // the label −1 is class 0
	if class >= n {
		return 0, fmt.Errorf("label %v", y)
	}
	return 1 - classes[class], nil
}

// labelled is a forecast whose label is known. Rows that are old say nothing of a model that has come since.
func (f *forecaster) labelled(x []float32, y float32, anomaly float64, old bool) (Forecast, error) {
	c, err := f.forecast(x)
	if err != nil {
		return c, err
	}
	r, err := c.Value, error(nil)
	if f.model.Target != "" {
		r, err = residual(c.Value, c.Classes, y)
	}
	if err != nil {
		return c, err
	}
	if !old {
		f.paired.add(x, y, r)
	}
	f.scoreAnomaly(&c, r, anomaly)
	return c, nil
}

// scoreAnomaly holds the residual of a forecast against those that are usual.
func (f *forecaster) scoreAnomaly(c *Forecast, r, anomaly float64) {
	c.Residual = &r
	if bound := f.recentResiduals.quantile(anomaly); bound > 0 {
		c.AnomalyScore = math.Abs(r) / bound
		c.Anomaly = c.AnomalyScore > 1
	}
	f.recentResiduals.add(r)
}

const (
	// maxResiduals is how many of the last residuals say what is usual, and leastResiduals how many are needed.
	maxResiduals   = 1000
	leastResiduals = 50
)

// residualHistory are the magnitudes of the last residuals, in a ring, and by size.
type residualHistory struct {
	magnitudes, sorted []float64
	next               int
}

func (r *residualHistory) add(v float64) {
	v = math.Abs(v)
	if len(r.magnitudes) < maxResiduals {
		r.magnitudes = append(r.magnitudes, v)
	} else {
		i, _ := slices.BinarySearch(r.sorted, r.magnitudes[r.next])
		r.sorted = slices.Delete(r.sorted, i, i+1)
		r.magnitudes[r.next] = v
		r.next = (r.next + 1) % maxResiduals
	}
	i, _ := slices.BinarySearch(r.sorted, v)
	r.sorted = slices.Insert(r.sorted, i, v)
}

// quantile returns the magnitude below which that share of the residuals lies; 0 while there are too few.
func (r *residualHistory) quantile(share float64) float64 {
	if len(r.magnitudes) < leastResiduals {
		return 0
	}
	return r.sorted[min(int(share*float64(len(r.sorted))), len(r.sorted)-1)]
}

// mean is the mean magnitude; NaN while there are none.
func (r *residualHistory) mean() float64 {
	sum := 0.0
	for _, v := range r.magnitudes {
		sum += v
	}
	return sum / float64(len(r.magnitudes))
}

// busyRetryDelay is when forecasts that the connection had no room for are tried again.
const busyRetryDelay = 100 * time.Millisecond

// startForecasts predicts from what has come to the source, if it is time. It needs neither broker nor coordinator.
func (a *Agent) startForecasts(now time.Time) {
	k, p := &a.models, a.cfg.Predict
	if p == nil || p.Publish == nil || k.forecastRunning || now.Before(k.nextForecastAt) {
		return
	}
	k.nextForecastAt = now.Add(p.ForecastInterval)
	if k.inUse == nil {
		return
	}
	k.forecastRunning = true
	m, f, l, with := k.inUse, &k.forecaster, a.taskData.Announced(), wire.ModelName{}
	jobs := a.core.DataJobs
	if m.External() { // its program may take as long as it likes: training does not wait for that
		jobs = k.jobs
	}
	if m.ModelName() == k.rollout.Candidate {
		with = k.rollout.Released
	}
	a.core.Do(jobs, func() func() {
		event := a.publishForecasts(f, m, with, l)
		paired := f.paired
		return func() {
			k.lastComparison = paired
			if k.forecastRunning = false; len(f.unpublishedForecasts) > 0 {
				k.nextForecastAt = a.owner.Now().Add(busyRetryDelay)
			}
			if event.NewForecasts+event.PublishedForecasts+event.FailedRows > 0 || event.Err != nil ||
				event.ErrorResolved {
				a.cfg.Observer.Observe(event)
			}
		}
	})
}

// publishForecasts publishes what there is to be told, and makes more of it when all before is told. The model with, if
// there is one, is compared. l is the device's task; nil if there is none yet.
func (a *Agent) publishForecasts(f *forecaster, m *modelfile.Model, with wire.ModelName,
	l *part.LocalTask) (event Predicted) {
	event.Residual = math.NaN()
	var err error
	if len(f.unpublishedForecasts) == 0 {
		began := a.owner.Now()
		if m.External() {
			f.unpublishedForecasts, err = a.forecastsOf(f, m, l)
		} else if err = f.use(a.cfg.Data, m); err == nil {
			f.setComparedModel(&a.cfg, with)
			f.unpublishedForecasts, event.FailedRows, err = f.forecastNewRows(a.cfg.Predict.UsualResidualShare)
		}
		event.NewForecasts, event.Took = len(f.unpublishedForecasts), a.owner.Now().Sub(began)
	}
	for _, c := range f.unpublishedForecasts[:event.NewForecasts] {
		if c.Anomaly {
			event.Anomalies++
		}
		if c.Residual != nil {
			event.Residual = f.recentResiduals.mean()
		}
	}
	f.publish(&event, a.cfg.Predict.Publish)
	before, text := f.lastReportedError, ""
	if err == nil {
		err = f.publishErr
	}
	if err != nil {
		text = err.Error()
	}
	if f.lastReportedError = text; text != before || event.LostForecasts > 0 {
		event.Err, event.ErrorResolved = err, text == "" && before != ""
	}
	return event
}

// publish tells what is ready. What a busy connection has no room for stays; what cannot be told now is lost.
func (f *forecaster) publish(event *Predicted, tell func(Forecast) error) {
	for i, c := range f.unpublishedForecasts {
		switch err := tell(c); {
		case errors.Is(err, mqtt.ErrBusy):
			f.unpublishedForecasts = f.unpublishedForecasts[i:]
			return
		case err != nil:
			f.publishErr = err
			event.LostForecasts++
		default:
			if event.LostForecasts == 0 {
				f.publishErr = nil
			}
			event.PublishedForecasts++
		}
	}
	f.unpublishedForecasts = nil
}
