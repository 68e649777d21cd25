package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/lab/air"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
)

// Predictions are what the agents predict of the year that is held out, as a subscriber of the site's broker hears it.
type Predictions struct {
	// Predicted is R² as Federated has it, of what was heard, with labels from the raw readings.
	Predicted  float64  `json:"predicted"`
	Forecasts  int      `json:"forecasts"` // station and hour, each counted once
	Missing    int      `json:"missing"`
	Twice      int      `json:"twice"`
	Unexpected int      `json:"unexpected"`      // of hours for which there is no row
	Named      []string `json:"named,omitempty"` // the first of those that are amiss
}

// mostNamed is how many forecasts that are amiss are named.
const mostNamed = 20

// stationHour is a row that is predicted.
type stationHour struct {
	station string
	at      int64 // seconds since 1970
}

func (s stationHour) String() string {
	return s.station + " " + time.Unix(s.at, 0).UTC().Format(time.RFC3339)
}

// audience is who hears the forecasts.
type audience struct {
	from   map[string]int64 // by station, the first hour that counts
	wanted map[stationHour]bool
	labels map[stationHour]float64
	heard  map[stationHour][]float64
	lacks  int   // of those wanted, how many have not been heard
	bad    error // of a message that is no forecast
}

// newAudience works out from the raw readings which forecasts must come, and what they are held against.
func newAudience(streams []air.StationData) (*audience, error) {
	a := &audience{from: map[string]int64{}, wanted: map[stationHour]bool{}, labels: map[stationHour]float64{},
		heard: map[stationHour][]float64{}}
	for _, s := range streams {
		// The last station trains up to some hours of that year: those are not predicted.
		a.from[s.Station] = max(air.HeldOutStart.Unix(), s.TrainHours[len(s.TrainHours)-1].At.Unix())
		made, err := rows(s.HeldOutHours, true)
		if err != nil {
			return nil, err
		}
		for _, at := range made.Times {
			if at /= int64(time.Second); at >= a.from[s.Station] {
				a.wanted[stationHour{s.Station, at}] = true
			}
		}
		for _, h := range s.HeldOutHours {
			for _, r := range h.Readings {
				if r.Input == "pm25" {
					a.labels[stationHour{s.Station, h.At.Add(-ahead).Unix()}] = math.Log1p(r.Value)
				}
			}
		}
	}
	a.lacks = len(a.wanted)
	return a, nil
}

// take takes a message: a forecast, or what its label has shown later, which is passed over.
func (a *audience) take(m mqtt.Message) {
	var f struct {
		Time       time.Time
		For        time.Time
		Device     string
		Prediction float64
		Residual   *float64
	}
	if err := json.Unmarshal(m.Payload, &f); err != nil {
		a.bad = fmt.Errorf("topic %s: %w", m.Topic, err)
		return
	}
	of := stationHour{strings.TrimPrefix(m.Topic, forecastsOf("")), f.Time.Unix()}
	if f.Device != of.station || !f.For.Equal(f.Time.Add(ahead)) {
		a.bad = fmt.Errorf("topic %s: forecast of device %q at %s for %s, want device %q and %s later", m.Topic,
			f.Device, f.Time, f.For, of.station, ahead)
		return
	}
	if f.Residual != nil || of.at < a.from[of.station] {
		return
	}
	if a.wanted[of] && a.heard[of] == nil {
		a.lacks--
	}
	a.heard[of] = append(a.heard[of], f.Prediction)
}

// whole reports whether all that must come has come.
func (a *audience) whole() bool { return a.lacks == 0 }

// score holds what was heard against the labels, at midnight and at noon in Beijing as the coordinator does, and counts
// what is amiss.
func (a *audience) score() *Predictions {
	p := &Predictions{Forecasts: len(a.heard)}
	count := func(n *int, of stationHour, what string) {
		if *n++; p.Missing+p.Twice+p.Unexpected <= mostNamed {
			p.Named = append(p.Named, of.String()+" "+what)
		}
	}
	all := map[stationHour]bool{}
	for of := range a.heard {
		all[of] = true
	}
	maps.Copy(all, a.wanted)
	var x, y []float32
	for _, of := range slices.SortedFunc(maps.Keys(all), func(a, b stationHour) int {
		return strings.Compare(a.String(), b.String())
	}) {
		heard := a.heard[of]
		switch {
		case !a.wanted[of]:
			count(&p.Unexpected, of, "unexpected")
			continue
		case len(heard) == 0:
			count(&p.Missing, of, "missing")
			continue
		case len(heard) > 1:
			count(&p.Twice, of, "twice")
		}
		label, known := a.labels[of]
		if scored := time.Unix(of.at, 0).UTC().Add(air.BeijingUTCOffset).Hour()%12 == 0; scored && known {
			x, y = append(x, float32(heard[0])), append(y, float32(label))
		}
	}
	if len(x) > 0 {
		p.Predicted = r2(learner.NewSamples(1, x, y), func(x []float32) float64 { return float64(x[0]) })
	}
	return p
}

// foretold has the stations say what they said in the year that is held out, once all agents predict with the last
// model, and scores what these foretell.
func (r *replay) foretold(ctx context.Context) (*Predictions, error) {
	a, err := newAudience(r.streams)
	if err != nil {
		return nil, err
	}
	// A session for each station: a broker drops what waits for one that is behind.
	for _, s := range r.streams {
		conn, err := r.dial(ctx, "audience-"+s.Station, mqtt.Options{MailboxMessages: 1 << 16})
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		conn.Subscribe(mqtt.AtMostOnce, forecastsOf(s.Station))
		go r.hear(conn, a)
	}
	if err := r.until(ctx, r.all(func(s string) bool { return r.models[s] >= r.rounds })); err != nil {
		return nil, fmt.Errorf("not all agents predict with model %d: %w", r.rounds, err)
	}
	talk, err := r.talk(ctx)
	if err != nil {
		return nil, err
	}
	defer talk.Close()
	if err := r.say(ctx, talk, func(s air.StationData) []air.StationHour { return s.HeldOutHours }); err != nil {
		return nil, err
	}
	if err := r.until(ctx, a.whole); err != nil && ctx.Err() != nil { // else some are missing
		return nil, err
	}
	if err := sleep(ctx, twice); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.score(), a.bad
}

// hear takes the forecasts of a connection.
func (r *replay) hear(conn mqtt.Conn, a *audience) {
	for e := range conn.Events() {
		if m, ok := e.(mqtt.MessageReceived); ok {
			r.change(func() { a.take(m.Message) })
		}
	}
}

// twice is how long an agent has for a forecast that it has published before.
const twice = 2 * time.Second
