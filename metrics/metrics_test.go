package metrics_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/agentmetrics"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// TestExposition compares a scrape after all events of the test script with a golden file.
func TestExposition(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			testkit.Golden(t, "testdata/"+p.name+".prom", exposition(t, p.played()), *update)
		})
	}
}

// TestLint checks names and help texts against the rules of Prometheus, including the build, runtime and process
// metrics.
func TestLint(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			reg := metrics.NewRegistry(p.name)
			o := p.make(reg)
			for _, event := range p.script {
				o.tell(event)
			}
			problems, err := promlint.New(strings.NewReader(exposition(t, reg))).Lint()
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range problems {
				t.Errorf("%s: %s", problem.Metric, problem.Text)
			}
		})
	}
}

// TestHistogramsHaveNativeBuckets checks that histograms have native buckets, which the text format does not show.
func TestHistogramsHaveNativeBuckets(t *testing.T) {
	for _, p := range programs {
		families, err := p.played().Gather()
		if err != nil {
			t.Fatal(err)
		}
		histograms := 0
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if h := m.GetHistogram(); h != nil {
					histograms++
					if h.Schema == nil || len(h.GetBucket()) == 0 {
						t.Errorf("%s: classic buckets: %d, native schema: %v; want both", family.GetName(),
							len(h.GetBucket()), h.Schema)
					}
				}
			}
		}
		if histograms == 0 {
			t.Errorf("%s has no histogram", p.name)
		}
	}
}

// TestMetricsAppearInTheStory checks that the scripts produce every registered metric, because the golden files and the
// documentation are generated from them.
func TestMetricsAppearInTheStory(t *testing.T) {
	for _, p := range programs {
		reg := p.played()
		text := exposition(t, reg)
		descriptions := make(chan *prometheus.Desc, 1000)
		reg.Describe(descriptions)
		close(descriptions)
		if len(descriptions) == 0 {
			t.Errorf("%s registers nothing", p.name)
		}
		for d := range descriptions {
			_, name, _ := strings.Cut(d.String(), `fqName: "`)
			name, _, _ = strings.Cut(name, `"`)
			if !strings.Contains(text, "# TYPE "+name+" ") {
				t.Errorf("no event of the story of %s sets %s", p.name, name)
			}
		}
	}
}

// TestStartsWithAllLabels checks that all series with labels exist before the first event, and that unknown values have
// no series.
func TestStartsWithAllLabels(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			fresh, _ := p.start()
			before := seriesOf(t, fresh)
			for _, name := range slices.Sorted(maps.Keys(seriesOf(t, p.played()))) {
				if _, ok := before[name]; !ok && strings.Contains(name, "{") && !strings.Contains(name, "{stat=") &&
					!strings.Contains(name, "{input=") && !strings.Contains(name, "coordinator_evaluation_") {
					t.Errorf("%s appears only when something happens", name)
				}
			}
			for name, value := range before {
				switch {
				case name == `coordinator_phase{phase="idle"}`, strings.Contains(name, "_config_last_reload_"),
					strings.HasSuffix(name, "_storage_ok"), name == "coordinator_leads",
					name == "coordinator_cluster_ok":
					// The value is known from the start.
				case value != "0":
					t.Errorf("%s starts with %s", name, value)
				}
			}
		})
	}
}

// TestFederations checks that the registry of the process contains the series of all federations of a device, and that
// each federation reports only its own series.
func TestFederations(t *testing.T) {
	process := metrics.NewRegistry("agentd")
	own := map[string]*prometheus.Registry{}
	for i, name := range []string{"air", "power"} {
		own[name] = metrics.NewRegistry("agentd")
		a := agentmetrics.New(metrics.DualRegisterer{Registerer: own[name], SecondRegisterer: process}, clock, name)
		apply(a.Events, agentround.AnnouncementObeyed{Position: wire.AnnouncementPosition{Round: wire.RoundID(3 + i)}})
		apply(a.Events, agentround.WorkEnded{Kind: wire.KindTraining, Result: agentround.WorkAccepted})
	}
	text := exposition(t, process)
	for _, want := range []string{`agentd_round{federation="air"} 3`, `agentd_round{federation="power"} 4`,
		`agentd_rounds_total{federation="power",kind="training",reason="none",result="accepted"} 1`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for name, want := range map[string]float64{"air": 3, "power": 4} {
		got := map[uint8]float64{}
		for _, r := range metrics.GatherReportMetrics(own[name]) {
			got[r.ID] = r.Value
		}
		if got[metrics.ReportedSeriesID("agentd_round", "")] != want || got[metrics.ReportedSeriesID("agentd_rounds_total", `result="accepted"`)] != 1 {
			t.Errorf("%s reports %v", name, got)
		}
	}
}
