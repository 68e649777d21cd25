package demo

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the readings
	"encoding/csv"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

//go:embed data/beijing-hourly.csv.gz
var hourlyGzip []byte

// sensors are the inputs of the task, with the columns of the raw file.
var sensors = []struct {
	column string
	input  spec.Input
}{
	{"PM2.5", logOf("pm25")}, {"PM10", logOf("pm10")}, {"SO2", logOf("so2")}, {"NO2", logOf("no2")},
	{"CO", logOf("co")},
	{"O3", logOf("o3")}, {"TEMP", spec.Input{Name: "temp", Unit: "°C"}},
	{"PRES", spec.Input{Name: "pres", Unit: "hPa"}},
	{"DEWP", spec.Input{Name: "dewp", Unit: "°C"}}, {"RAIN", logOf("rain")},
	{"WSPM", spec.Input{Name: "wspm", Unit: "m/s"}},
	{"wd", spec.Input{Name: "wd", Classes: strings.Fields("N NNE NE ENE E ESE SE SSE S SSW SW WSW W WNW NW NNW")}},
}

func logOf(name string) spec.Input { return spec.Input{Name: name, Scale: spec.ScaleLog1p} }

// recipe is how rows are made of the readings.
func recipe() spec.Recipe {
	r := spec.Recipe{Grid: spec.Grid{Step: time.Hour}}
	for _, s := range sensors {
		r.Inputs = append(r.Inputs, s.input)
	}
	return r.WithDefaults()
}

// streamFeatures are the columns, the first of which is the present value of the target.
func streamFeatures(r spec.Recipe) []string {
	var all []string
	for _, in := range r.Inputs {
		all = append(all, in.Name)
	}
	return r.Expand(append(all, "pm25 lag 3h", "pm25 lag 6h", "pm25 lag 24h", "temp lag 6h", "pres lag 6h", "hour"))
}

const (
	streamTarget = "pm25 in 6h"
	ahead        = 6 * time.Hour
	fillAtMost   = 3 * time.Hour
	// beijing is how far its clocks are ahead of UTC.
	beijing = 8 * time.Hour
)

// heldFrom is the beginning of the year in which all are scored.
var heldFrom = time.Date(2016, 3, 1, 0, 0, 0, 0, time.UTC).Add(-beijing)

// hour is what a station says of an hour: a JSON object.
type hour struct {
	at       time.Time
	payload  []byte
	readings []grid.Reading
}

// stream is a station, with what it says while the federation trains, and in the year that none has seen.
type stream struct {
	station     string
	train, held []hour
}

// readStreams returns the stations by name.
func readStreams() ([]stream, error) {
	z, err := gzip.NewReader(bytes.NewReader(hourlyGzip))
	if err != nil {
		return nil, fmt.Errorf("the embedded data: %w", err)
	}
	all, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("the embedded data: %w", err)
	}
	places := map[string]int{}
	for i, name := range all[0] {
		places[name] = i
	}
	var streams []stream
	for _, row := range all[1:] {
		h, err := hourOf(row, places)
		if err != nil {
			return nil, err
		}
		station := row[places["station"]]
		if len(streams) == 0 || streams[len(streams)-1].station != station {
			streams = append(streams, stream{station: station})
		}
		s := &streams[len(streams)-1]
		// The last station trains up to the year that is held out: the day before it is of both.
		if n := len(s.train); (n == 0 || h.at.Sub(s.train[n-1].at) == time.Hour) &&
			h.at.Before(heldFrom.Add(4*time.Hour)) {
			s.train = append(s.train, h)
		}
		if !h.at.Before(heldFrom.Add(-24 * time.Hour)) {
			s.held = append(s.held, h)
		}
	}
	return streams, nil
}

// hourOf reads a row of the raw file.
func hourOf(row []string, places map[string]int) (hour, error) {
	var n [4]int
	for i, name := range []string{"year", "month", "day", "hour"} {
		var err error
		if n[i], err = strconv.Atoi(row[places[name]]); err != nil {
			return hour{}, fmt.Errorf("the embedded data: %w", err)
		}
	}
	h := hour{at: time.Date(n[0], time.Month(n[1]), n[2], n[3], 0, 0, 0, time.UTC).Add(-beijing)}
	object := map[string]any{"time": h.at.Format(time.RFC3339)}
	for _, s := range sensors {
		text := row[places[s.column]]
		if text == "NA" {
			continue
		}
		r := grid.Reading{Input: s.input.Name, Time: h.at.UnixNano(), Text: text}
		object[s.column] = text
		if len(s.input.Classes) == 0 {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return hour{}, fmt.Errorf("the embedded data: %w", err)
			}
			r.Value, r.Text, object[s.column] = v, "", json.Number(text)
		}
		h.readings = append(h.readings, r)
	}
	var err error
	h.payload, err = json.Marshal(object)
	return h, err
}

// rows makes the rows of hours as an agent does: to train, or early, to predict.
func rows(hours []hour, early bool) (grid.Rows, error) {
	r := recipe()
	g, err := grid.New(grid.Config{Recipe: r, Features: streamFeatures(r), Target: streamTarget,
		Missing: grid.Fill{Policy: grid.Last, AtMost: fillAtMost}, Early: early})
	if err != nil {
		return grid.Rows{}, err
	}
	for _, h := range hours {
		for _, x := range h.readings {
			g.Add(x)
		}
	}
	return g.Take(), g.Refused()
}

// writeStreams lays out the rows that the agents will make, for what they are compared with, and those of the year that
// is held out, at midnight and at noon in Beijing as in the other demo.
func writeStreams(dir string, streams []stream) (*files, error) {
	f := &files{features: streamFeatures(recipe()), target: streamTarget, held: filepath.Join(dir, "held-out.csv")}
	width := len(f.features)
	var heldX, heldY []float32
	for _, s := range streams {
		made, err := rows(s.train, false)
		if err != nil {
			return nil, err
		}
		f.stations = append(f.stations, s.station)
		f.train = append(f.train, filepath.Join(dir, s.station+".csv"))
		if err := f.write(f.train[len(f.train)-1], learner.NewSamples(width, made.X, made.Y)); err != nil {
			return nil, err
		}
		f.rows = append(f.rows, len(made.Y))
		if made, err = rows(s.held, false); err != nil {
			return nil, err
		}
		for i, at := range made.Times {
			t := time.Unix(0, at).UTC()
			if !t.Before(heldFrom) && t.Add(beijing).Hour()%12 == 0 {
				heldX = append(heldX, made.X[i*width:(i+1)*width]...)
				heldY = append(heldY, made.Y[i])
			}
		}
	}
	return f, f.write(f.held, learner.NewSamples(width, heldX, heldY))
}

// streamed is the plan of the demo whose agents hear their stations over a broker of the site.
type streamed struct {
	together
	site string // URL of that broker
}

func (p streamed) coordinator() settings.Coordinator {
	s := p.together.coordinator()
	r := recipe()
	s.Task.Grid, s.Task.Inputs, s.Task.Features, s.Task.Target = r.Grid, r.Inputs, p.files.features, p.files.target
	return s
}

func (p streamed) agent(i int) settings.Agent {
	s := p.together.agent(i)
	topic := topicOf(p.files.stations[i])
	s.Data = data.Config{Source: data.MQTT, Time: "time", Columns: map[string]string{}, Missing: grid.Last,
		LastAtMost: fillAtMost}
	for _, of := range sensors {
		s.Data.Columns[of.input.Name] = topic + " " + strings.ReplaceAll(of.column, ".", `\.`)
	}
	s.Readings.Broker.URLs = config.OneOrMore{p.site}
	s.Privacy.MinRows = p.files.rows[i] // all of them, so that the model does not depend on when they come
	s.Predict.Keep, s.Predict.Refresh, s.Predict.Every = 1, time.Second, time.Second
	s.Predict.Publish, s.Predict.Broker.URLs = forecastsOf(p.files.stations[i]), config.OneOrMore{p.site}
	return s
}

// topicOf is of what a station says, forecastsOf of what its agent predicts.
func topicOf(station string) string     { return "air/" + station }
func forecastsOf(station string) string { return "forecast/" + station }

// inTurn gives hours of all stations, the first of each, then the second.
func inTurn(streams []stream, of func(stream) []hour, give func(station string, h hour) error) error {
	for i, more := 0, true; more; i++ {
		more = false
		for _, s := range streams {
			if hours := of(s); i < len(hours) {
				more = true
				if err := give(s.station, hours[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
