package logging

import (
	"io"
	"log/slog"
	"testing"
)

// TestRecentRecords checks that the newest 2,000 records are kept with their attributes, without debug records,
// whatever the log level is.
func TestRecentRecords(t *testing.T) {
	var recent RecentRecords
	log, err := New(io.Discard, Options{Level: "error", Format: "text", Recent: &recent})
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("not kept")
	log.With("agent", "a 1").WithGroup("tls").Warn("certificate expires", "days", 3, slog.Group("key", "bits", 256))
	all := recent.Records(0)
	want := RecentRecord{Number: 1, Level: "WARN", Message: "certificate expires",
		Attributes: `agent="a 1" tls.days=3 tls.key.bits=256`}
	if len(all) == 1 {
		want.Time = all[0].Time
	}
	if len(all) != 1 || all[0] != want {
		t.Errorf("got %+v, want %+v", all, want)
	}
	for range keptRecords + 5 {
		recent.add(RecentRecord{})
	}
	all = recent.Records(0)
	if len(all) != keptRecords || all[0].Number != 7 || all[len(all)-1].Number != keptRecords+6 {
		t.Errorf("%d records, from %d to %d", len(all), all[0].Number, all[len(all)-1].Number)
	}
	if all = recent.Records(keptRecords + 5); len(all) != 1 || all[0].Number != keptRecords+6 {
		t.Errorf("after number %d: %+v", keptRecords+5, all)
	}
	if all = recent.Records(keptRecords + 6); len(all) != 0 {
		t.Errorf("after the newest record: %+v", all)
	}
}
