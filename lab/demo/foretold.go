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

// Predictions describes the agents' forecasts for the held-out year, as received by a subscriber of the site's broker.
type Predictions struct {
	// Predicted is the coefficient of determination R² of the received forecasts. It is computed like Federated, but
	// the true values come from the raw readings.
	Predicted  float64 `json:"predicted"`
	Forecasts  int     `json:"forecasts"` // number of distinct (station, hour) pairs with a forecast
	Missing    int     `json:"missing"`
	Twice      int     `json:"twice"`
	Unexpected int     `json:"unexpected"` // number of forecasts for hours without a data row
	// Named describes the first forecasts that are missing, duplicate or unexpected.
	Named []string `json:"named,omitempty"`
}

// mostNamed is the maximum number of missing, duplicate or unexpected forecasts that the result lists.
const mostNamed = 20

// stationHour identifies a forecast by its station and by the hour of its input row.
type stationHour struct {
	station string
	at      int64 // Unix time in seconds
}

func (s stationHour) String() string {
	return s.station + " " + time.Unix(s.at, 0).UTC().Format(time.RFC3339)
}

// audience collects the forecasts of all stations and compares them with the expected forecasts.
type audience struct {
	from   map[string]int64 // first hour with an expected forecast (Unix time), by station
	wanted map[stationHour]bool
	labels map[stationHour]float64
	heard  map[stationHour][]float64
	lacks  int   // number of expected forecasts that have not arrived yet
	bad    error // error of an invalid forecast message; nil if all messages are valid
}

// newAudience returns an audience that expects a forecast for each held-out row. newAudience takes the true values from
// the raw readings.
func newAudience(streams []air.StationData) (*audience, error) {
	a := &audience{from: map[string]int64{}, wanted: map[stationHour]bool{}, labels: map[stationHour]float64{},
		heard: map[stationHour][]float64{}}
	for _, s := range streams {
		// Training readings may reach some hours into the held-out year. Expect no forecasts for those hours.
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

// take records the forecast in a message. It ignores messages that repeat a forecast together with the true value.
func (a *audience) take(m mqtt.Message) {
	var f struct {
		Time       time.Time
		For        time.Time
		Device     string
		Prediction float64
		Residual   *float64
	}
	if err := json.Unmarshal(m.Payload, &f); err != nil {
		a.bad = fmt.Errorf("topic %s: invalid forecast: %w", m.Topic, err)
		return
	}
	of := stationHour{strings.TrimPrefix(m.Topic, forecastsOf("")), f.Time.Unix()}
	if f.Device != of.station || !f.For.Equal(f.Time.Add(ahead)) {
		a.bad = fmt.Errorf("topic %s: got a forecast of device %q made at %s for %s, want device %q and a target "+
			"time %s later", m.Topic,
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

// whole reports whether all expected forecasts have been received.
func (a *audience) whole() bool { return a.lacks == 0 }

// score computes R² of the forecasts at midnight and noon in Beijing, the hours that the coordinator evaluates. score
// also counts missing, duplicate and unexpected forecasts.
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

// foretold waits until all agents use the final model, replays the readings of the held-out year, and scores the
// forecasts that the agents publish.
func (r *replay) foretold(ctx context.Context) (*Predictions, error) {
	a, err := newAudience(r.streams)
	if err != nil {
		return nil, err
	}
	// Each station needs a separate session, since a broker drops messages for a slow subscriber.
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
		return nil, fmt.Errorf("not all agents use model version %d for forecasts: %w", r.rounds, err)
	}
	talk, err := r.talk(ctx)
	if err != nil {
		return nil, err
	}
	defer talk.Close()
	if err := r.say(ctx, talk, func(s air.StationData) []air.StationHour { return s.HeldOutHours }); err != nil {
		return nil, err
	}
	if err := r.until(ctx, a.whole); err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err := sleep(ctx, twice); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.score(), a.bad
}

// hear passes each message that conn receives to the audience.
func (r *replay) hear(conn mqtt.Conn, a *audience) {
	for e := range conn.Events() {
		if m, ok := e.(mqtt.MessageReceived); ok {
			r.change(func() { a.take(m.Message) })
		}
	}
}

// twice is the time to wait for duplicate forecasts.
const twice = 2 * time.Second
