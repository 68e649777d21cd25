// Package air contains hourly readings of air pollution and weather from twelve stations in Beijing. The file SOURCE.md
// describes their origin and licence.
package air

import (
	"bytes"
	"compress/gzip"
	_ "embed" // The blank import enables go:embed.
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

// Sensors lists the input series of the task and the column of the raw CSV file that contains each series.
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

// Recipe returns the recipe by which an agent makes training rows from the hourly readings.
func Recipe() spec.RowRecipe {
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}}
	for _, s := range Sensors {
		r.Inputs = append(r.Inputs, s.Input)
	}
	return r.WithDefaults()
}

// BeijingUTCOffset is the difference between Beijing's local time and UTC.
const BeijingUTCOffset = 8 * time.Hour

// HeldOutStart is the start of the held-out year. Models are evaluated on the readings of that year and never trained
// on them.
var HeldOutStart = time.Date(2016, 3, 1, 0, 0, 0, 0, time.UTC).Add(-BeijingUTCOffset)

// StationHour holds the readings of one station for one hour.
type StationHour struct {
	At       time.Time
	Payload  []byte // JSON object with one reading per column of the raw file
	Readings []grid.Reading
}

// StationData holds the readings of one station, split into training hours and the hours of the held-out year.
type StationData struct {
	Station                  string
	TrainHours, HeldOutHours []StationHour
}

// LoadStations reads the embedded data file and returns the readings of all stations, sorted by station name.
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
		// Collect consecutive training hours until shortly after the start of the held-out year. The hours around this
		// time belong to both the training hours and the held-out hours.
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

// FillAtMost is the maximum age of the previous reading that may replace a missing reading.
const FillAtMost = 3 * time.Hour

// Rows makes training rows from hourly readings in the same way as an agent. If early is true, it makes rows for
// prediction instead, whose target values are not known yet.
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

// hourOf parses one row of the raw CSV file. places maps column names to column indices.
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
