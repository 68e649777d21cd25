package settings_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// fromTelegraf returns the code block with the given language from the section about Telegraf in
// docs/howto/read-from-modbus-and-opc-ua.md.
func fromTelegraf(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/howto/read-from-modbus-and-opc-ua.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## From Modbus, OPC UA and others with Telegraf\n")
	section, _, _ = strings.Cut(section, "\n## ")
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(section)
	if m == nil {
		t.Fatalf("the page has no %s for Telegraf", language)
	}
	return m[1]
}

// TestTelegraf checks that the configuration on that page can read the message on the same page. The message has the
// form that Telegraf's documentation describes.
func TestTelegraf(t *testing.T) {
	s := settings.DefaultAgent()
	text := strings.Replace(agentFile(t), "data:\n  csv: rows.csv\n", fromTelegraf(t, "yaml"), 1)
	if err := settings.Load(&s, "agentd", writeFile(t, "agentd.yaml", text), nil); err != nil {
		t.Fatal(err)
	}
	message := fromTelegraf(t, "json")
	synctest.Test(t, func(t *testing.T) {
		at := time.Unix(1772366400, 0)
		// the clock of a synctest bubble starts in 2000, and the message must not be from the future
		<-time.After(time.Until(at))
		b := memory.New(memory.Options{})
		source, err := sources.Open(&s.Data)
		if err != nil {
			t.Fatal(err)
		}
		err = source.(data.ReadingCollector).Start(data.CollectorEnv{RingFolder: filepath.Join(t.TempDir(), "readings"),
			Disk:       store.LocalDisk,
			RingLimits: s.Readings.RingBounds(), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			ConnectBroker: func(func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
				return b.Session("roof-1-data", nil, nil),
					nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		telegraf := b.Connect("telegraf", nil)
		defer telegraf.Close()
		synctest.Wait()
		for _, stamp := range []string{"1772366400", "1772366410", "1772366420"} {
			payload := strings.Replace(message, "1772366400", stamp, 1)
			if err := telegraf.Publish(mqtt.Message{Topic: "site/modbus", Payload: []byte(payload)}); err != nil {
				t.Error(err)
			}
			<-time.After(10 * time.Second)
		}
		<-time.After(10 * time.Second) // wait until the reading has been written to disk
		recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: 10 * time.Second},
			Inputs: []spec.InputSeries{{Name: "temperature"}, {Name: "pressure"}}}.WithDefaults()
		v, err := source.OpenRows(data.RowQuery{Features: []string{"temperature", "pressure"},
			Target: "temperature in 10s",
			Recipe: &recipe}).Snapshot()
		if err != nil || v.Rows.Len() != 1 || v.Times.At(0) != at.UnixNano() ||
			!slices.Equal(v.Rows.All().X, []float32{64.5, 1.87}) || v.Rows.All().Y[0] != 64.5 {
			t.Errorf("%+v, %v", v, err)
		}
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	})
}
