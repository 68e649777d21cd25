package demo

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var testHeading = heading{
	Broker: "tcp://127.0.0.1:1883", Embedded: true, Agents: 3, Features: 21, Model: "linear", Rounds: 2, L: 2, Seed: 1,
	Rule: "mean", Stations: []string{"Aotizhongxin", "Changping", "Dingling"},
}

var testResult = Result{
	Event: "result", Task: "air", Rounds: 2, Federated: 0.62, AloneMean: 0.25, AloneWorst: -0.25, Central: 0.64,
	Persistence: 0.5355,
	Seconds:     1.25, Model: "abc", rows: 300,
	alone: []stationScore{{"Aotizhongxin", 100, 0.75}, {"Changping", 150, 0.25}, {"Dingling", 50, -0.25}},
}

// script is a short run: the events of the run, including the number of draws of each participant.
var script = []observe.Event{
	round.AgentEligible{Agent: "Aotizhongxin", EligibleAgents: 1},
	round.AgentEligible{Agent: "Changping", EligibleAgents: 3},
	round.RoundOpened{Round: 1, Kind: wire.KindStatistics,
		Participants: []wire.AgentID{"Aotizhongxin", "Changping", "Dingling"}},
	round.UpdateAccepted{Agent: "Changping", Round: 1, Update: wire.Update{Kind: wire.KindStatistics}},
	aggregation.StatisticsReady{Rows: 300, Columns: 22},
	round.RoundOpened{Round: 2, Kind: wire.KindTraining, Participants: []wire.AgentID{"Aotizhongxin", "Dingling"}},
	round.UpdateAccepted{Agent: "Dingling", Round: 2, Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 16}},
	round.UpdateAccepted{Agent: "Aotizhongxin", Round: 2, Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 32}},
	aggregation.ModelReady{Round: 2, Version: 1, MeanReportedRisk: 0.531, HeldOutScore: &learner.Score{R2: 0.58875}},
}

// play passes events to a watcher with the display d.
func play(t *testing.T, d display, events []observe.Event) *watcher {
	t.Helper()
	d.start(testHeading)
	w := newWatcher(d, testHeading.Rounds)
	for _, f := range events {
		w.Observe(f)
		if done, err := (<-w.events)(); done || err != nil {
			t.Fatalf("%T ends the run, error %v", f, err)
		}
	}
	return w
}

const plainHead = `fedmesh demo: predict air pollution (log PM2.5) six hours ahead from 21 features
3 agents, one per weather station in Beijing; each keeps its own measurements of three months
linear model, 2 rounds with 2 of 3 agents each, seed 1, embedded broker tcp://127.0.0.1:1883

columns standardised with sums over 300 rows of 3 agents; all rows stay on the agents
`

const table = `
Prediction quality (R²) of each model in the held-out year at all stations.
R² = 1 is perfect; 0 is as good as predicting the mean; below 0 is worse.

                                  R²
  Aotizhongxin alone           0.750   ridge regression on its own 100 rows
  Changping alone              0.250   ridge regression on its own 150 rows
  Dingling alone              -0.250   ridge regression on its own 50 rows

  a station alone, mean        0.250   worst station: -0.250
  persistence                  0.535   no model: predicts the present value for six hours ahead
  federated                    0.620   2 rounds; all rows stay at their stations
  centralised                  0.640   ridge regression on all 300 rows together

Ridge regressions have λ = 1 and standardise columns with the moments of their training rows.
1.2 seconds
`

func compareText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPlain(t *testing.T) {
	var b bytes.Buffer
	d := plain{&b}
	play(t, d, script)
	d.result(&testResult)
	compareText(t, b.String(), plainHead+
		"round   1/2  loss 0.5310  R² 0.5887  participants: Aotizhongxin (E=32), Dingling (E=16)\n"+table)
}

func TestPlainOnABrokerOfTheUsers(t *testing.T) {
	var b bytes.Buffer
	h := testHeading
	h.Embedded, h.Metrics = false, "http://127.0.0.1:9464/metrics"
	plain{&b}.start(h)
	r := testResult
	r.out = "result"
	plain{&b}.result(&r)
	for _, want := range []string{
		", broker tcp://127.0.0.1:1883\n", "\nmetrics: http://127.0.0.1:9464/metrics\n",
		"\nmodel.safetensors, history.jsonl and result.json are in result\n",
	} {
		if !bytes.Contains(b.Bytes(), []byte(want)) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestJSONLines(t *testing.T) {
	var b bytes.Buffer
	d := jsonLines{&b}
	w := play(t, d, script)
	w.now.R2 = math.NaN() // Set a finite value, because JSON cannot represent NaN.
	d.model(&w.now)
	d.result(&testResult)
	compareText(t, b.String(),
		`{"event":"start","broker":"tcp://127.0.0.1:1883","embedded":true,"agents":3,"features":21,"model":"linear","rounds":2,"participants":2,"seed":1,"rule":"mean"}
{"event":"standardised","rows":300,"agents":3}
{"event":"round","round":1,"loss":0.531,"r2":0.58875,"participants":["Aotizhongxin","Dingling"],"local_steps":{"Aotizhongxin":32,"Dingling":16}}
{"event":"round","round":1,"loss":0.531,"r2":null,"participants":["Aotizhongxin","Dingling"],"local_steps":{"Aotizhongxin":32,"Dingling":16}}
{"event":"result","task":"air","rounds":2,"federated":0.62,"alone_mean":0.25,"alone_worst":-0.25,"central":0.64,"persistence":0.5355,"seconds":1.25,"model":"abc"}
`)
}

// liveOn returns a live display on a screen that it shares with log lines.
func liveOn(s *screen) *live {
	return &live{plain: plain{s}, size: func() (int, int) { return s.width, s.height }, stderr: s}
}

// TestLive checks the live display. It runs in a synctest bubble, so that all elapsed times are zero.
func TestLive(t *testing.T) { synctest.Test(t, testLive) }

func testLive(t *testing.T) {
	s := newScreen(t, 120, 40)
	d := liveOn(s)
	shown := func(n int, want string) {
		t.Helper()
		*s = *newScreen(t, s.width, s.height)
		d.drawn = nil
		play(t, d, script[:n])
		_, body, _ := bytes.Cut([]byte(s.text()), []byte("1883\n\n"))
		compareText(t, string(body), want)
	}
	const standardised = "columns standardised with sums over 300 rows of 3 agents; all rows stay on the agents\n"
	shown(1, "|waiting for agents: 1 of 3 ready\n")
	shown(4, "|waiting for agents: 3 of 3 ready\n")
	shown(5, standardised+"|\n")
	shown(7, standardised+`|░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ round 0/2  loss   -     R²   -     0.0 s
  ◌ Aotizhongxin        · Changping           ● Dingling E=16
`)
	shown(9, standardised+`|███████████████░░░░░░░░░░░░░░░ round 1/2  loss 0.5310  R² 0.5887  0.0 s
  ● Aotizhongxin E=32   · Changping           ● Dingling E=16
`)
	d.result(&testResult)
	_, body, _ := bytes.Cut([]byte(s.text()), []byte("all rows stay on the agents\n"))
	compareText(t, string(body), `███████████████░░░░░░░░░░░░░░░ round 1/2  loss 0.5310  R² 0.5887  0.0 s
  ● Aotizhongxin E=32   · Changping           ● Dingling E=16
`+table+"|\n")
}

// TestLiveFitsTheTerminal runs the display on terminals of many sizes. The screen detects lines that are too wide, and
// invalid cursor positions.
func TestLiveFitsTheTerminal(t *testing.T) {
	for _, width := range []int{1, 20, 41, 60, 75, 80, 200} {
		for _, height := range []int{1, 2, 3, 24} {
			s := newScreen(t, width, height)
			d := liveOn(s)
			d.all = testHeading.Stations // Skip the heading, which may be wider than the terminal.
			w := newWatcher(d, 2)
			for _, f := range script[5:] {
				w.Observe(f)
				if _, err := (<-w.events)(); err != nil {
					t.Fatal(err)
				}
			}
			d.draw("fewer lines than before")
			d.draw("more", "lines", "than", "before")
			d.failed()
		}
	}
}

// TestLiveKeepsLogLinesApart checks that a log line appears complete above the live lines.
func TestLiveKeepsLogLinesApart(t *testing.T) {
	s := newScreen(t, 80, 24)
	d := liveOn(s)
	d.draw("first", "second")
	if _, err := fmt.Fprintln(d, "WARN something"); err != nil {
		t.Fatal(err)
	}
	compareText(t, s.text(), "WARN something\n|first\nsecond\n")
	d.draw("one")
	compareText(t, s.text(), "WARN something\n|one\n")
	d.draw("a", "b", "c")
	d.failed()
	if _, err := fmt.Fprintln(d, "coordinator: interrupted"); err != nil {
		t.Fatal(err)
	}
	compareText(t, s.text(), "WARN something\na\nb\nc\ncoordinator: interrupted\n|\n")
}

func TestTookPart(t *testing.T) {
	p := progress{Participants: []wire.AgentID{"a", "b"}, Done: map[wire.AgentID]int{"a": 3}}
	if got := tookPart(&p); got != "a (E=3), b" {
		t.Errorf("%q", got)
	}
}

// TestWatcherEndsTheDemo checks that the demo fails on each event that could make the result random, and that it ends
// with the run.
func TestWatcherEndsTheDemo(t *testing.T) {
	for _, tt := range []struct {
		event observe.Event
		want  string
	}{
		{round.RoundClosed{Round: 3, MissingAgents: []wire.AgentID{"a"}},
			"round 3 closed without updates from [a], so the result is not reproducible"},
		{round.RoundAbandoned{Round: 3, Reason: round.AbandonUnusableAggregate, Err: errors.New("not finite")},
			"round 3 was abandoned (fold); missing updates: []\nnot finite"},
		{round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData}, "agent a cannot perform the task: bad_data"},
		{round.AgentDeclined{Agent: "a", Round: 3, Reason: wire.DeclineNoTime}, "agent a declined round 3: no_time"},
		{round.UpdateRefused{Agent: "a", Reason: wire.RefuseNormTooLarge}, "update of agent a was refused: norm"},
	} {
		w := newWatcher(plain{&bytes.Buffer{}}, 2)
		if done, err := w.takeRound(tt.event); done || fmt.Sprint(err) != tt.want {
			t.Errorf("%T: done %v, error %v\nwant %s", tt.event, done, err, tt.want)
		}
	}
	w := newWatcher(plain{&bytes.Buffer{}}, 2)
	if done, err := w.takeRound(round.RoundClosed{Round: 3}); done || err != nil {
		t.Errorf("a round that everybody took part in: done %v, error %v", done, err)
	}
	if done, err := w.takeRound(round.RunFinished{}); !done || err != nil {
		t.Errorf("a finished run: done %v, error %v", done, err)
	}
}
