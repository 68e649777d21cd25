package predict

import (
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/observe"
)

// forecastBuckets contains the histogram buckets for the duration of forecasts, in seconds.
var forecastBuckets = []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}

var (
	forecasts       = observe.Counter("forecasts_total", "Predictions and residuals published.")
	lostForecasts   = observe.Counter("forecasts_lost_total", "Predictions and residuals that could not be published.")
	failedForecasts = observe.Counter("forecasts_failed_total",
		"Rows without a prediction, because the prediction is not finite or the label is not a known class.")
	anomalies = observe.Counter("anomalies_total", "Residuals (prediction errors) classified as anomalies by the "+
		"setting predict.anomaly.")
	forecastsOK = observe.OptionalGauge("forecasts_ok",
		"1 if forecasts are published, 0 if rows cannot be read or the broker is unavailable.")
	lastForecastAt = observe.OptionalGauge("forecast_timestamp_seconds",
		"Time of the last published forecast.")
	meanResidual = observe.OptionalGauge("residual_mean",
		"Mean magnitude of the last 1,000 residuals (prediction errors), in the target's unit or as a probability.")
	forecastValue = observe.OptionalGauge("forecast_value",
		"Newest forecast, in the target's unit. Only with metrics.values.")
	forecastHorizon = observe.OptionalGauge("forecast_horizon_seconds",
		"Time from the row of the newest forecast to the predicted value. Only with metrics.values.")
	targetValue = observe.OptionalGauge("target_value",
		"Newest known value of the target, in its unit; absent for classes. Only with metrics.values.")
	targetForecast = observe.OptionalGauge("target_forecast",
		"Forecast for the newest known value of the target, in its unit; absent for classes. Only with "+
			"metrics.values.")
	forecastResidual = observe.OptionalGauge("forecast_residual",
		"Newest residual (prediction error), in the target's unit or as a probability. Only with metrics.values.")
	forecastDuration = observe.Histogram("forecast_duration_seconds",
		"Time to read and predict one row, averaged over the rows of one check for new data.", forecastBuckets)
)

// ForecastsMade reports that the device has made forecasts from its own rows, or has failed to make them.
type ForecastsMade struct {
	NewForecasts       int // number of forecasts made since the last event
	PublishedForecasts int // number of published forecasts, including some of earlier checks
	LostForecasts      int // number of forecasts that could not be published
	// number of rows without a forecast, because a value is not finite or the label is not a valid class
	FailedRows       int
	Anomalies        int
	MeanResidual     float64       // mean absolute forecast error of recent rows; NaN if no labels arrived
	ForecastDuration time.Duration // time to find the rows and to make the new forecasts
	ShownForecast    *Forecast     // newest forecast; nil without metrics.values or a new forecast
	ShownResidual    *Forecast     // newest forecast with a residual; nil in the same cases as ShownForecast
	Err              error         // error, if the error is new or forecasts were lost; otherwise nil
	ErrorResolved    bool          // true if the previously reported error no longer occurs
}

// Describe implements observe.Event.
func (e ForecastsMade) Describe(d *observe.EventDescription) {
	const condition = "forecasts"
	d.AddToCounter(forecasts, float64(e.PublishedForecasts))
	d.AddToCounter(lostForecasts, float64(e.LostForecasts))
	d.AddToCounter(failedForecasts, float64(e.FailedRows))
	d.AddToCounter(anomalies, float64(e.Anomalies))
	d.SetBoolGauge(forecastsOK, e.Err == nil)
	if e.PublishedForecasts > 0 {
		d.SetGaugeToNow(lastForecastAt)
	}
	if e.NewForecasts > 0 {
		d.ObserveHistogram(forecastDuration, e.ForecastDuration.Seconds()/float64(e.NewForecasts))
	}
	if f := e.ShownForecast; f != nil {
		d.SetGauge(forecastValue, f.Value)
		d.SetGauge(forecastHorizon, f.Target.Horizon.Seconds())
	}
	if f := e.ShownResidual; f != nil {
		d.SetGauge(forecastResidual, *f.Residual)
		if len(f.ClassProbabilities) == 0 && f.Target.TargetColumn != "" {
			d.SetGauge(targetValue, f.Value+*f.Residual)
			d.SetGauge(targetForecast, f.Value)
		}
	}
	if !math.IsNaN(e.MeanResidual) {
		d.SetGauge(meanResidual, e.MeanResidual)
	}
	if e.Err != nil {
		d.Log(observe.Error, "cannot make forecasts", "lost", e.LostForecasts, "err", e.Err)
		d.RaiseCondition(condition, fmt.Sprintf("forecasts cannot be made or published: %v", e.Err),
			"check predict.broker, and check the data with `agentd data check`")
	}
	if e.ErrorResolved {
		d.Log(observe.Info, "forecasts are published again")
		d.ResolveCondition(condition)
	}
	if e.Anomalies > 0 {
		d.Log(observe.Warn, "anomalies detected", "rows", e.NewForecasts, "anomalies", e.Anomalies)
	}
}
