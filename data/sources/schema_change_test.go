package sources

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
)

// TestSchemaChanges checks that if the format of a sensor's messages changes while agentd is running, the sensor is
// reported within a minute. The report must end with the next valid messages.
func TestSchemaChanges(t *testing.T) {
	const senML = `[{"n":"t","u":"%s","v":%v}]`
	for _, tt := range []struct {
		name, column, format, good, bad string // payloads with a placeholder for the value
		want                            string // expected part of the reported problem
	}{
		{"field renamed", "site/a temp", "", `{"temp":%v}`, `{"temperature":%v}`,
			`the last 4 values are not used: 99 used, 4 missing; most recently: site/a: the value is absent`},
		{"value became a text", "site/a temp", "", `{"temp":%v}`, `{"temp":"about %v"}`, "4 not_a_number; most recently"},
		{"value became an object", "site/a temp", "", `{"temp":%v}`, `{"temp":{"value":%v}}`, "4 not_a_number"},
		{"value became null", "site/a temp", "", `{"temp":%v}`, `{"temp":null,"x":%v}`, "4 missing"},
		{"JSON replaced by a number", "site/a temp", "", `{"temp":%v}`, `%v`, "4 missing"},
		{"JSON replaced by a text", "site/a temp", "", `{"temp":%v}`, `T=%v`, "4 malformed"},
		{"value multiplied", "site/a temp", "", `{"temp":%v}`, `{"temp":%v00}`,
			`4 out_of_range; most recently: from topic site/a at`},
		{"unit of another quantity", "site/a t", "senml", fmt.Sprintf(senML, "Cel", "%v"), fmt.Sprintf(senML, "kPa",
			"%v"),
			`4 wrong_unit; most recently: from topic site/a at 2000-01-01T00:17:20Z: "21" has a wrong unit: "kPa" is a unit ` +
				`of pressure, but "°C" is a unit of temperature: set the sensor's unit in data.units`},
		{"unit converted", "site/a t", "senml", fmt.Sprintf(senML, "Cel", "%v"), fmt.Sprintf(senML, "[degF]", "%v"),
			""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := data.Config{ColumnByInput: map[string]string{"x": tt.column}}
				if tt.format != "" {
					c.TopicSettings = []data.TopicSettings{{Topic: "site/a", Format: tt.format}}
				}
				h := newFormatsHarness(t, c)
				defer h.close()
				recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Second},
					Inputs: []spec.InputSeries{{Name: "x", Unit: "°C", ValidRange: []float64{-50, 60}}}}.WithDefaults()
				rows := h.source.OpenRows(data.RowQuery{Features: []string{"x"}, Recipe: &recipe})
				publish := func(count int, payload string) {
					for range count {
						h.publish(mqtt.Message{Topic: "site/a", Payload: []byte(fmt.Sprintf(payload, 21))})
						pass(10 * time.Second)
					}
				}
				troubles := func() (all []string) {
					pass(ringWriteInterval)
					rows.(data.QualityUpdater).UpdateQualityReport()
					for _, trouble := range rows.(data.QualityReporter).QualityReport().Troubles {
						all = append(all, string(trouble.Kind)+": "+trouble.Text)
					}
					return all
				}
				if publish(100, tt.good); len(troubles()) > 0 {
					t.Fatalf("troubles of good values: %q", troubles())
				}
				publish(4, tt.bad)
				switch got := troubles(); {
				case tt.want == "" && len(got) > 0:
					t.Errorf("troubles %q, want none", got)
				case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
					t.Errorf("troubles %q, want %q", got, tt.want)
				}
				if publish(1, tt.good); len(troubles()) > 0 {
					t.Errorf("troubles after the next good value: %q", troubles())
				}
			})
		})
	}
}
