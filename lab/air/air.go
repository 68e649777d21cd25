// Package air has what twelve stations in Beijing have read each hour of the air and of the weather: SOURCE.md says
// where it comes from.
package air

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the readings
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

//go:embed beijing-hourly.csv.gz
var hourlyReadingsGzip []byte

// Sensors are the inputs of the task, with the columns of the raw file.
var Sensors = []struct {
	Column string
	Input  spec.InputSeries
}{
	{"PM2.5", logScaledInput("pm25")}, {"PM10", logScaledInput("pm10")}, {"SO2", logScaledInput("so2")}, {"NO2",
		logScaledInput("no2")},
	{"CO", logScaledInput("co")},
	{"O3", logScaledInput("o3")}, {"TEMP", spec.InputSeries{Name: "temp", Unit: "°C"}},
	{"PRES", spec.InputSeries{Name: "pres", Unit: "hPa"}},
	{"DEWP", spec.InputSeries{Name: "dewp", Unit: "°C"}}, {"RAIN", logScaledInput("rain")},
	{"WSPM", spec.InputSeries{Name: "wspm", Unit: "m/s"}},
	{"wd", spec.InputSeries{Name: "wd",
		Classes: strings.Fields("N NNE NE ENE E ESE SE SSE S SSW SW WSW W WNW NW NNW")}},
}

func logScaledInput(name string) spec.InputSeries {
	return spec.InputSeries{Name: name, Transform: spec.TransformLog1p}
}

// Recipe is how rows are made of the readings.
func Recipe() spec.RowRecipe {
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}}
	for _, s := range Sensors {
		r.Inputs = append(r.Inputs, s.Input)
	}
	return r.WithDefaults()
}

// BeijingUTCOffset is how far its clocks are ahead of UTC.
const BeijingUTCOffset = 8 * time.Hour

// HeldOutStart is the beginning of the year in which all are scored.
var HeldOutStart = time.Date(2016, 3, 1, 0, 0, 0, 0, time.UTC).Add(-BeijingUTCOffset)

// StationHour is what a station says of an hour.
type StationHour struct {
	At       time.Time
	Payload  []byte // a JSON object of what was read, by the column of the raw file
	Readings []grid.Reading
}

// StationData is a station, with what it says while the federation trains, and in the year that none has seen.
type StationData struct {
	Station                  string
	TrainHours, HeldOutHours []StationHour
}

// LoadStations returns the stations by name.
func LoadStations() ([]StationData, error) {
	z, err := gzip.NewReader(bytes.NewReader(hourlyReadingsGzip))
	if err != nil {
		return nil, fmt.Errorf("air: %w", err)
	}
	all, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("air: %w", err)
	}
	places := map[string]int{}
	for i, name := range all[0] {
		places[name] = i
	}
	var streams []StationData
	for _, row := range all[1:] {
		h, err := hourOf(row, places)
		if err != nil {
			return nil, err
		}
		station := row[places["station"]]
		if len(streams) == 0 || streams[len(streams)-1].Station != station {
			streams = append(streams, StationData{Station: station})
		}
		s := &streams[len(streams)-1]
		// The last station trains up to the year that is held out: the day before it is of both.
		if n := len(s.TrainHours); (n == 0 || h.At.Sub(s.TrainHours[n-1].At) == time.Hour) &&
			h.At.Before(HeldOutStart.Add(4*time.Hour)) {
			s.TrainHours = append(s.TrainHours, h)
		}
		if !h.At.Before(HeldOutStart.Add(-24 * time.Hour)) {
			s.HeldOutHours = append(s.HeldOutHours, h)
		}
	}
	return streams, nil
}

// FillAtMost is for how long a reading stands for those that are missing.
const FillAtMost = 3 * time.Hour

// Rows makes the rows of hours as an agent does: to train, or early, to predict.
func Rows(hours []StationHour, features []string, target string, early bool) (grid.MadeRows, error) {
	g, err := grid.NewRowBuilder(grid.RowBuilderConfig{Recipe: Recipe(), ExpandedFeatures: features, Target: target,
		MissingFill: grid.FillRule{Policy: grid.FillLast, MaxLastValueAge: FillAtMost}, IsForPrediction: early})
	if err != nil {
		return grid.MadeRows{}, err
	}
	for _, h := range hours {
		for _, x := range h.Readings {
			g.AddReading(x)
		}
	}
	return g.TakeRows(), g.MissingValueError()
}

// hourOf reads a row of the raw file.
func hourOf(row []string, places map[string]int) (StationHour, error) {
	var n [4]int
	for i, name := range []string{"year", "month", "day", "hour"} {
		var err error
		if n[i], err = strconv.Atoi(row[places[name]]); err != nil {
			return StationHour{}, fmt.Errorf("air: %w", err)
		}
	}
	h := StationHour{At: time.Date(n[0], time.Month(n[1]), n[2], n[3], 0, 0, 0, time.UTC).Add(-BeijingUTCOffset)}
	object := map[string]any{"time": h.At.Format(time.RFC3339)}
	for _, s := range Sensors {
		text := row[places[s.Column]]
		if text == "NA" {
			continue
		}
		r := grid.Reading{Input: s.Input.Name, Time: h.At.UnixNano(), Text: text}
		object[s.Column] = text
		if len(s.Input.Classes) == 0 {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return StationHour{}, fmt.Errorf("air: %w", err)
			}
			r.Value, r.Text, object[s.Column] = v, "", json.Number(text)
		}
		h.Readings = append(h.Readings, r)
	}
	var err error
	h.Payload, err = json.Marshal(object)
	return h, err
}
