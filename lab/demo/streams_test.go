package demo

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/air"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestRunStreams checks that `make demo-streams` reaches the documented result: the model that is trained on raw
// readings is as good as the model that is trained on prepared rows.
func TestRunStreams(t *testing.T) {
	t.Parallel() // Run in parallel with other tests, because this test mostly waits.
	o := Defaults()
	o.Streams = true
	r, _ := runJSON(t, o)
	if want := promised(t, "federated: 50 rounds"); !(math.Abs(r.Federated-want) <= 0.01) {
		t.Errorf("R² %.4f; the rows of the other demo give %.3f", r.Federated, want)
	}
	p := r.Predictions
	if !(math.Abs(p.Predicted-r.Federated) <= 0.001) {
		t.Errorf("R² %.6f by what a subscriber has heard, %.6f by the coordinator", p.Predicted, r.Federated)
	}
	if p.Forecasts < 100_000 || p.Missing+p.Twice+p.Unexpected+len(p.Named) > 0 {
		t.Errorf("%+v", p)
	}
}

// TestAudience checks that missing, duplicate and unexpected forecasts are counted and listed. Messages with true
// values must be ignored, and R² must be computed only from forecasts for midnight and noon.
func TestAudience(t *testing.T) {
	if testing.Short() {
		t.Skip("a year of readings of twelve stations")
	}
	streams, err := air.LoadStations()
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAudience(streams)
	if err != nil {
		t.Fatal(err)
	}
	if hours := len(streams) * 365 * 24; len(a.wanted) < hours*95/100 || len(a.wanted) > hours {
		t.Errorf("%d forecasts are expected of %d hours, want 95 to 100 %%", len(a.wanted), hours)
	}
	say := func(of stationHour, value float64, more string) {
		at := time.Unix(of.at, 0)
		text := fmt.Sprintf(`{"time":%q,"for":%q,"device":%q,"prediction":%v%s}`, at.Format(time.RFC3339),
			at.Add(ahead).Format(time.RFC3339), of.station, value, more)
		a.take(mqtt.Message{Topic: forecastsOf(of.station), Payload: []byte(text)})
	}
	noon := air.HeldOutStart.Add(12 * time.Hour)
	for of := range a.wanted {
		// Make the forecasts correct at midnight and noon, and wrong at other hours.
		if label, known := a.labels[of]; known && time.Unix(of.at, 0).UTC().Hour()%12 == noon.Hour()%12 {
			say(of, label, "")
		} else {
			say(of, -1, "")
		}
	}
	if p := a.score(); p.Predicted < 1-1e-9 || p.Named != nil || p.Forecasts != len(a.wanted) || !a.whole() {
		t.Errorf("%+v", p)
	}
	at := func(station string, after time.Duration) stationHour {
		return stationHour{station, noon.Add(after).Unix()}
	}
	delete(a.heard, at("Dongsi", 0))
	say(at("Dongsi", 0), 1, `,"residual":0.5`)
	say(at("Wanliu", 0), 1, "")
	say(at("Shunyi", time.Minute), 1, "")
	say(at("Shunyi", -13*time.Hour), 1, "")
	p := a.score()
	want := "Dongsi 2016-03-01T04:00:00Z missing; Shunyi 2016-03-01T04:01:00Z unexpected; " +
		"Wanliu 2016-03-01T04:00:00Z twice"
	if got := strings.Join(p.Named, "; "); got != want || p.Missing != 1 || p.Twice != 1 || p.Unexpected != 1 ||
		a.bad != nil {
		t.Errorf("%+v", p)
	}
	if a.take(mqtt.Message{Payload: []byte("1.5")}); a.bad == nil {
		t.Error("a number is a forecast")
	}
}

// TestStreams checks the rows that are made from raw hourly readings. Each station uses a different quarter of the
// data.
func TestStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("a year of readings of twelve stations")
	}
	streams, err := air.LoadStations()
	if err != nil {
		t.Fatal(err)
	}
	f, err := writeStreams(t.TempDir(), streams)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.stations) != stations || len(f.features) != 34 {
		t.Errorf("%d stations, features %q", len(f.stations), f.features)
	}
	for i, s := range streams {
		n := len(s.TrainHours)
		if long := s.TrainHours[n-1].At.Sub(s.TrainHours[0].At); long != time.Duration(n-1)*time.Hour || n > 100*24 ||
			!s.TrainHours[n-1].At.Before(air.HeldOutStart.Add(4*time.Hour)) || f.rows[i] < 800 || f.rows[i] > n-30 {
			t.Errorf("%s: %d hours in %v make %d rows", s.Station, n, long, f.rows[i])
		}
	}
	b, err := baselines(f)
	if err != nil {
		t.Fatal(err)
	}
	if b.Central < 0.63 || b.Central > 0.65 || b.Persistence < 0.5 {
		t.Errorf("baselines %+v", b)
	}
}
