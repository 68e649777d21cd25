package predict

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// Forecast is the prediction for a row of the device's own source. It includes the residual once the label is known.
type Forecast struct {
	RowTime            time.Time // time of the row; zero if rows have no time
	Target             modelfile.PredictionTarget
	ModelName          string  // name of the model, as RUN/VERSION
	Value              float64 // predicted value (see learner.Prediction)
	ClassProbabilities []float64
	// Residual is nil until the row's label arrives. It is the label minus the prediction of the model that is in use
	// at that time. For a classification it is 1 minus the predicted probability of the label's class. For an
	// autoencoder it is the prediction itself, the reconstruction error of the row.
	Residual     *float64
	AnomalyScore float64 // magnitude of the residual divided by its usual bound; 0 if unknown
	IsAnomaly    bool    // true if AnomalyScore is greater than 1
}

// TargetTime returns the time of the predicted target, or zero if rows have no time.
func (f *Forecast) TargetTime() time.Time {
	if f.RowTime.IsZero() {
		return f.RowTime
	}
	return f.RowTime.Add(f.Target.Horizon)
}

// forecaster makes forecasts for the rows of a source. It is used by one job at a time.
type forecaster struct {
	model                *modelfile.Model
	predictionTarget     modelfile.PredictionTarget // description of the value that the model predicts
	predictor            *learner.Predictor[float32]
	unlabeledRows        *rowFollower // rows whose targets may still be unknown; nil if the model has no target
	labeledRows          *rowFollower // source of rows whose target values are known
	recentResiduals      residualHistory
	comparison           modelComparison
	unpublishedForecasts []Forecast // forecasts that wait until the connection can accept more messages
	publishErr           error      // error of the last attempt to publish a forecast; nil if it succeeded
	lastReportedError    string     // text of the last reported error
}

// rowFollower returns the rows of a source that were added since the last call.
type rowFollower struct {
	rows          data.QueriedRows
	snapshotTaken bool
	seenRows      int
	newestRowTime int64
	snapshotErr   error // error of the last snapshot of the rows; nil if it succeeded
}

// readNewRows returns a snapshot of the rows and the index of the first new row. The result old is true for the first
// snapshot, whose rows existed before the start.
func (f *rowFollower) readNewRows() (v data.RowSnapshot, from int, old bool, err error) {
	if (f.snapshotTaken || f.snapshotErr != nil) && !f.rows.Changed() {
		return v, 0, false, f.snapshotErr
	}
	if v, f.snapshotErr = f.rows.Snapshot(); f.snapshotErr != nil {
		return v, 0, false, f.snapshotErr
	}
	n := v.Rows.Len()
	switch {
	case !f.snapshotTaken:
		old = true
	case v.Times != nil:
		from = v.Times.FirstRowSince(f.newestRowTime + 1)
	case v.ReplacementReason != "":
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

// use switches the forecaster to the model m. If the columns of m differ from the columns of the previous model, it
// opens the source's rows again.
func (f *forecaster) use(source data.Source, m *modelfile.Model) error {
	if f.model == m {
		return nil
	}
	by, err := m.Predictor()
	if err != nil {
		return err
	}
	if f.model == nil || !f.model.IsComparableWith(m) {
		want := data.RowQuery{Features: m.Features, Target: m.Target, Recipe: m.Recipe}
		f.unlabeledRows, f.labeledRows, f.recentResiduals = nil, &rowFollower{rows: source.OpenRows(want)},
			residualHistory{}
		if m.Target != "" {
			if want.IsForPrediction = m.Recipe != nil; !want.IsForPrediction {
				want.Target = "" // A line of a file is read whether or not it has a target value.
			}
			f.unlabeledRows = &rowFollower{rows: source.OpenRows(want)}
		}
	}
	f.model, f.predictionTarget, f.predictor, f.comparison = m, m.PredictionTarget(), by, modelComparison{}
	return nil
}

// modelComparison compares the residuals of the model in use with the residuals of another model, on rows for which
// both models have made predictions.
type modelComparison struct {
	candidate, reference wire.ModelRef
	// referencePredictor predicts with the reference model. It is nil if the reference model is missing or predicts
	// another target.
	referencePredictor                           *learner.Predictor[float32]
	comparedRows                                 uint32
	candidateSquaredError, referenceSquaredError float64 // sums of the squared residuals of the two models
}

// setReferenceModel sets the stored model with which the model in use is compared. The zero value of with disables the
// comparison, and so does a model that cannot be read.
func (f *forecaster) setReferenceModel(folder state.Folder, logger *slog.Logger, with wire.ModelRef) {
	if f.comparison.reference == with {
		return
	}
	f.comparison = modelComparison{candidate: f.model.ModelRef(), reference: with}
	if !with.IsSet() {
		return
	}
	m, err := findKeptModel(folder, with)
	if err == nil && m != nil && m.IsComparableWith(f.model) {
		f.comparison.referencePredictor, err = m.Predictor()
	}
	if err != nil {
		logger.Warn("cannot read the released model; the candidate model is not compared with it", "err", err)
	}
}

// compareOnLabeledRow adds a row with the label y to the comparison. The parameter r is the residual of the model in
// use. Rows with a non-finite prediction are skipped.
func (p *modelComparison) compareOnLabeledRow(x []float32, y float32, r float64) {
	if p.referencePredictor == nil {
		return
	}
	other := p.referencePredictor.Predict(x)
	old, err := residual(other.Value, other.ClassProbabilities, y)
	if err == nil && old-old == 0 && p.comparedRows < math.MaxUint32 {
		p.comparedRows++
		p.candidateSquaredError += r * r
		p.referenceSquaredError += old * old
	}
}

// forecastNewRows returns the forecasts for the rows added since the last call, and the number of rows without a
// forecast. The first call returns only the forecast for the newest row. The parameter anomaly is the share of
// residuals that are considered usual.
//
// A row made from readings has a second forecast, which contains the residual, once its target is known. A line of a
// file has one forecast, which includes the residual if the line has a target. Lines are identified by their times, so
// a line without a target has a forecast only if the option data.time is set.
func (f *forecaster) forecastNewRows(anomaly float64) (all []Forecast, bad int, err error) {
	lines := f.model.Recipe == nil
	if f.unlabeledRows != nil && !lines {
		if all, bad, err = f.forecastUnlabeledRows(); err != nil {
			return nil, 0, err
		}
	}
	v, from, old, err := f.labeledRows.readNewRows()
	if lines && v.Rows != nil && v.Times == nil {
		f.unlabeledRows = nil
	}
	if f.unlabeledRows != nil && lines {
		all, _, _ = f.forecastUnlabeledRows() // Ignore the error, which also occurs for labeledRows.
		all = slices.DeleteFunc(all, func(c Forecast) bool {
			return c.RowTime.IsZero() || v.Rows != nil && v.Times.HasTime(c.RowTime.UnixNano())
		})
	}
	if err != nil {
		if len(all) > 0 || f.unlabeledRows != nil && !lines {
			err = nil // The labels arrive later.
		}
		return all, bad, err
	}
	if old {
		from = max(0, v.Rows.Len()-maxResiduals) // Learn the usual residuals from earlier rows.
	}
	told, wrong := f.forecastRows(v, from,
		func(x []float32, y float32) (Forecast, error) { return f.forecastLabeledRow(x, y, anomaly, old) })
	switch {
	case old && (len(all) > 0 || f.unlabeledRows != nil && !lines): // The newest row has no target value yet.
		told = nil
	case old:
		told = told[max(0, len(told)-1):]
	}
	return append(all, told...), bad + wrong, nil
}

// forecastUnlabeledRows returns the forecasts for new rows whose targets may still be unknown.
func (f *forecaster) forecastUnlabeledRows() (all []Forecast, bad int, err error) {
	v, from, old, err := f.unlabeledRows.readNewRows()
	if err != nil || v.Rows == nil {
		return nil, 0, err
	}
	if old {
		from = v.Rows.Len() - 1
	}
	all, bad = f.forecastRows(v, from, func(x []float32, _ float32) (Forecast, error) { return f.forecastRow(x) })
	return all, bad, nil
}

// forecastRows returns forecasts for the rows of a snapshot, starting at the index from. The function of makes the
// forecast for one row.
func (f *forecaster) forecastRows(v data.RowSnapshot, from int, of func(x []float32, y float32) (Forecast,
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
			c.RowTime = time.Unix(0, v.Times.At(i)).UTC()
		}
		all = append(all, c)
	}
	return all, bad
}

func (f *forecaster) forecastRow(x []float32) (Forecast, error) {
	p := f.predictor.Predict(x)
	if p.Value-p.Value != 0 {
		return Forecast{}, fmt.Errorf("the prediction is %v, which is not a finite number", p.Value)
	}
	return Forecast{Target: f.predictionTarget, ModelName: f.model.DisplayName(), Value: p.Value,
		ClassProbabilities: slices.Clone(p.ClassProbabilities)}, nil
}

// residual returns the label minus the prediction. For a classification it returns 1 minus the predicted probability of
// the label's class.
func residual(value float64, classes []float64, y float32) (float64, error) {
	n := len(classes)
	if n == 0 {
		return float64(y) - value, nil
	}
	class := max(int(y), 0) // For two classes the label is +1 or −1, and −1 means class 0.
	if class >= n {
		return 0, fmt.Errorf("label %v is not one of the %d classes", y, n)
	}
	return 1 - classes[class], nil
}

// forecastLabeledRow returns the forecast and residual for a row with label y. It skips the model comparison for old
// rows.
func (f *forecaster) forecastLabeledRow(x []float32, y float32, anomaly float64, old bool) (Forecast, error) {
	c, err := f.forecastRow(x)
	if err != nil {
		return c, err
	}
	r, err := c.Value, error(nil)
	if f.model.Target != "" {
		r, err = residual(c.Value, c.ClassProbabilities, y)
	}
	if err != nil {
		return c, err
	}
	if !old {
		f.comparison.compareOnLabeledRow(x, y, r)
	}
	f.scoreAnomaly(&c, r, anomaly)
	return c, nil
}

// scoreAnomaly sets the residual of a forecast and its anomaly score relative to recent residuals.
func (f *forecaster) scoreAnomaly(c *Forecast, r, anomaly float64) {
	c.Residual = &r
	if bound := f.recentResiduals.magnitudeQuantile(anomaly); bound > 0 {
		c.AnomalyScore = math.Abs(r) / bound
		c.IsAnomaly = c.AnomalyScore > 1
	}
	f.recentResiduals.addResidual(r)
}

const (
	// maxResiduals is the number of recent residuals from which the usual range is computed.
	maxResiduals = 1000
	// leastResiduals is the minimum number of residuals from which the usual range is computed.
	leastResiduals = 50
)

// residualHistory contains the magnitudes of recent residuals, both in the order of arrival and in ascending order.
type residualHistory struct {
	magnitudes, sorted []float64
	oldestIndex        int
}

func (r *residualHistory) addResidual(v float64) {
	v = math.Abs(v)
	if len(r.magnitudes) < maxResiduals {
		r.magnitudes = append(r.magnitudes, v)
	} else {
		i, _ := slices.BinarySearch(r.sorted, r.magnitudes[r.oldestIndex])
		r.sorted = slices.Delete(r.sorted, i, i+1)
		r.magnitudes[r.oldestIndex] = v
		r.oldestIndex = (r.oldestIndex + 1) % maxResiduals
	}
	i, _ := slices.BinarySearch(r.sorted, v)
	r.sorted = slices.Insert(r.sorted, i, v)
}

// magnitudeQuantile returns a quantile of the residuals' magnitudes, or 0 if there are fewer than leastResiduals.
func (r *residualHistory) magnitudeQuantile(share float64) float64 {
	if len(r.magnitudes) < leastResiduals {
		return 0
	}
	return r.sorted[min(int(share*float64(len(r.sorted))), len(r.sorted)-1)]
}

// meanMagnitude returns the mean magnitude of the residuals, or NaN if there are none.
func (r *residualHistory) meanMagnitude() float64 {
	sum := 0.0
	for _, v := range r.magnitudes {
		sum += v
	}
	return sum / float64(len(r.magnitudes))
}

// busyRetryDelay is the delay before publishing is retried after the connection's queue was full.
const busyRetryDelay = 100 * time.Millisecond

// startForecasts starts a job that makes forecasts for new rows if a check is due. It works without a broker
// connection.
func (p *PredictionManager) startForecasts(now time.Time) {
	if p.cfg.PublishForecast == nil || p.forecastRunning || now.Before(p.nextForecastAt) {
		return
	}
	p.nextForecastAt = now.Add(p.cfg.ForecastInterval)
	if p.inUse == nil {
		return
	}
	p.forecastRunning = true
	m, f, l, compared := p.inUse, &p.forecaster, p.dependencies.Tasks.AnnouncedTask(), wire.ModelRef{}
	jobs := p.core.DataJobs
	if m.IsExternal() { // Use a separate queue, since training must not wait for the program.
		jobs = p.core.ModelJobs
	}
	if m.ModelRef() == p.rollout.CandidateModel {
		compared = p.rollout.ReleasedModel
	}
	p.core.RunJobThenOnLoop(jobs, func() func() {
		event := p.makeAndPublishForecasts(f, m, compared, l)
		comparison := f.comparison
		return func() {
			p.lastComparison = comparison
			if p.forecastRunning = false; len(f.unpublishedForecasts) > 0 {
				p.nextForecastAt = p.core.Loop.Now().Add(busyRetryDelay)
			}
			if event.NewForecasts+event.PublishedForecasts+event.FailedRows > 0 || event.Err != nil ||
				event.ErrorResolved {
				p.core.Observer.Observe(event)
			}
		}
	})
}

// makeAndPublishForecasts publishes the waiting forecasts. If no forecasts wait, it makes and publishes new forecasts.
// It compares the model in use with the model compared, unless compared is zero. The parameter l is the announced task,
// or nil.
func (p *PredictionManager) makeAndPublishForecasts(f *forecaster, m *modelfile.Model, compared wire.ModelRef,
	l *part.LocalTask) (event ForecastsMade) {
	event.MeanResidual = math.NaN()
	var err error
	if len(f.unpublishedForecasts) == 0 {
		began := p.core.Loop.Now()
		if m.IsExternal() {
			f.unpublishedForecasts, err = p.makeExternalForecasts(f, m, l)
		} else if err = f.use(p.dependencies.Source, m); err == nil {
			f.setReferenceModel(p.core.StateFolder, p.core.Logger, compared)
			f.unpublishedForecasts, event.FailedRows, err = f.forecastNewRows(p.cfg.UsualResidualShare)
		}
		event.NewForecasts, event.ForecastDuration = len(f.unpublishedForecasts), p.core.Loop.Now().Sub(began)
	}
	for _, c := range f.unpublishedForecasts[:event.NewForecasts] {
		if c.IsAnomaly {
			event.Anomalies++
		}
		if c.Residual != nil {
			event.MeanResidual = f.recentResiduals.meanMagnitude()
		}
		if p.cfg.ShowsValues && c.Residual != nil {
			event.ShownResidual = &c
		} else if p.cfg.ShowsValues {
			event.ShownForecast = &c
		}
	}
	// The forecast for a line of a file contains both values.
	event.ShownForecast = cmp.Or(event.ShownForecast, event.ShownResidual)
	f.publishWaitingForecasts(&event, p.cfg.PublishForecast)
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

// publishWaitingForecasts publishes the waiting forecasts. If the connection cannot accept more messages, the forecasts
// continue to wait. After any other error they are lost.
func (f *forecaster) publishWaitingForecasts(event *ForecastsMade, send func(Forecast) error) {
	for i, c := range f.unpublishedForecasts {
		switch err := send(c); {
		case errors.Is(err, mqtt.ErrOutboxFull):
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
