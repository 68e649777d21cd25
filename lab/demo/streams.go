package demo

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/air"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// streamFeatures returns the names of the feature columns. The first feature is the present value of the target.
func streamFeatures(r spec.RowRecipe) []string {
	var all []string
	for _, in := range r.Inputs {
		all = append(all, in.Name)
	}
	return r.ExpandFeatures(append(all, "pm25 lag 3h", "pm25 lag 6h", "pm25 lag 24h", "temp lag 6h", "pres lag 6h",
		"hour"))
}

const (
	streamTarget = "pm25 in 6h"
	ahead        = 6 * time.Hour
)

// rows makes the rows of the demonstration from hourly readings. If early is true, it makes rows for prediction, whose
// targets are not known yet.
func rows(hours []air.StationHour, early bool) (grid.MadeRows, error) {
	return air.Rows(hours, streamFeatures(air.Recipe()), streamTarget, early)
}

// writeStreams writes CSV files for the baseline models: the training rows of each station, which the agents build
// again from readings, and the held-out rows at midnight and noon in Beijing.
func writeStreams(dir string, streams []air.StationData) (*files, error) {
	f := &files{features: streamFeatures(air.Recipe()), target: streamTarget, held: filepath.Join(dir, "held-out.csv")}
	width := len(f.features)
	var heldX, heldY []float32
	for _, s := range streams {
		made, err := rows(s.TrainHours, false)
		if err != nil {
			return nil, err
		}
		f.stations = append(f.stations, s.Station)
		f.train = append(f.train, filepath.Join(dir, s.Station+".csv"))
		if err := f.write(f.train[len(f.train)-1], learner.NewSamples(width, made.X, made.Y)); err != nil {
			return nil, err
		}
		f.rows = append(f.rows, len(made.Y))
		if made, err = rows(s.HeldOutHours, false); err != nil {
			return nil, err
		}
		for i, at := range made.Times {
			t := time.Unix(0, at).UTC()
			if !t.Before(air.HeldOutStart) && t.Add(air.BeijingUTCOffset).Hour()%12 == 0 {
				heldX = append(heldX, made.X[i*width:(i+1)*width]...)
				heldY = append(heldY, made.Y[i])
			}
		}
	}
	return f, f.write(f.held, learner.NewSamples(width, heldX, heldY))
}

// streamed is the plan of the demo in which agents receive readings over MQTT.
type streamed struct {
	together
	site string // URL of the broker for the stations' readings
}

func (p streamed) coordinator() coordinatorsettings.ConfigFile {
	s := p.together.coordinator()
	r := air.Recipe()
	s.Task.TimeGrid, s.Task.Inputs, s.Task.Features, s.Task.Target = r.Grid, r.Inputs, p.files.features, p.files.target
	return s
}

func (p streamed) agent(i int) settings.Agent {
	s := p.together.agent(i)
	topic := topicOf(p.files.stations[i])
	s.Data = data.Config{Source: data.SourceMQTT, TimeColumn: "time", ColumnByInput: map[string]string{},
		MissingValuePolicy: grid.FillLast,
		MaxLastValueAge:    air.FillAtMost}
	for _, of := range air.Sensors {
		s.Data.ColumnByInput[of.Input.Name] = topic + " " + strings.ReplaceAll(of.Column, ".", `\.`)
	}
	s.Readings.Broker.URLs = config.OneOrMore{p.site}
	// Require all rows, so that the model does not depend on the arrival time of readings.
	s.Privacy.MinRowsToParticipate = p.files.rows[i]
	s.Predict.KeptModels, s.Predict.MinModelRefreshInterval, s.Predict.ForecastInterval = 1, time.Second, time.Second
	s.Predict.ForecastTopic, s.Predict.ForecastBroker.URLs = forecastsOf(p.files.stations[i]), config.OneOrMore{p.site}
	return s
}

// topicOf and forecastsOf return the topics for the readings of a station and for the forecasts of its agent.
func topicOf(station string) string     { return "air/" + station }
func forecastsOf(station string) string { return "forecast/" + station }

// inTurn calls give for each hour that `of` selects: the first hour of every station, then the second hour, and so on.
func inTurn(streams []air.StationData, of func(air.StationData) []air.StationHour, give func(station string,
	h air.StationHour) error) error {
	for i, more := 0, true; more; i++ {
		more = false
		for _, s := range streams {
			if hours := of(s); i < len(hours) {
				more = true
				if err := give(s.Station, hours[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
