package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/observe"
)

// TestBoard checks that a condition keeps its start time when its texts change, and that it disappears when it is
// resolved.
func TestBoard(t *testing.T) {
	c := surface.NewClock()
	changed := make(chan struct{}, 1)
	b := status.NewBoard(c.Now, changed)
	var d observe.EventDescription
	d.RaiseCondition("clone s1", "two devices are s1", "rename one")
	d.RaiseNotReadyCondition("storage", "cannot save the model: full", "free space in state_dir")
	b.ApplyDescription(&d)
	began := c.Now()
	c.Advance(time.Minute)
	d.Reset()
	d.RaiseNotReadyCondition("storage", "cannot save the update: full", "free space in state_dir")
	b.ApplyDescription(&d)
	all := b.Conditions()
	if len(all) != 2 || all[0].Name != "clone s1" || all[1].Problem != "cannot save the update: full" ||
		!all[1].Since.Equal(began) {
		t.Errorf("conditions %+v", all)
	}
	if err := b.ReadinessErr(); err == nil || err.Error() != "cannot save the update: full; free space in state_dir" {
		t.Errorf("readiness: %v", err)
	}
	if got, want := b.StatusLine(), "connecting to the broker; run `status` for details of: clone s1, "+
		"storage"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d.Reset()
	d.ResolveCondition("storage")
	d.ShowStatusValue(observe.ConnectionStatus, "connected to the broker")
	d.ShowStatusValue(observe.ActivityStatus, "round 7 is open")
	b.ApplyDescription(&d)
	if err := b.ReadinessErr(); err != nil {
		t.Errorf("readiness after it was resolved: %v", err)
	}
	if got, want := b.StatusLine(),
		"connected to the broker; round 7 is open; run `status` for details of: clone s1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if len(changed) != 1 {
		t.Error("a change is not signalled")
	}
	<-changed
	if b.ApplyDescription(&d); len(changed) != 0 {
		t.Error("an event that is repeated is signalled")
	}
	d.Reset()
	d.Log(observe.Info, "nothing to show")
	if b.ApplyDescription(&d); len(changed) != 0 {
		t.Error("an event that changes nothing is signalled")
	}
}

// TestShownValues checks that a value is shown until it is set to nil, and that only texts change the status line.
func TestShownValues(t *testing.T) {
	const name = "rows"
	changed := make(chan struct{}, 1)
	b := status.NewBoard(surface.NewClock().Now, changed)
	for _, value := range []map[string]int{{"a.csv": 7}, {"a.csv": 8}} { // comparing maps with == would panic
		b.ApplyDescription(&observe.EventDescription{StatusValues: []observe.StatusValue{{Name: name, Value: value}}})
		if got := status.ShownValue[map[string]int](b, name); got["a.csv"] != value["a.csv"] {
			t.Errorf("shown %v, want %v", got, value)
		}
	}
	if got := status.ShownValue[string](b, name); got != "" {
		t.Errorf("a value of another type is shown as %q", got)
	}
	b.ApplyDescription(&observe.EventDescription{StatusValues: []observe.StatusValue{{Name: name}}})
	if got := status.ShownValue[map[string]int](b, name); got != nil {
		t.Errorf("%v is shown after its removal", got)
	}
	if len(changed) != 0 {
		t.Error("a value outside the status line is signalled")
	}
	if got := b.ShownTexts(); got != nil {
		t.Errorf("shown without a text: %v", got)
	}
	b.ApplyDescription(&observe.EventDescription{StatusValues: []observe.StatusValue{
		{Name: "disk", Value: "1.2 GB free"}, {Name: observe.ActivityStatus, Value: "round 7 is open"}}})
	if got := b.ShownTexts(); len(got) != 1 || got["disk"] != "1.2 GB free" {
		t.Errorf("shown %v, want only the text of the disk", got)
	}
	page := status.Page{Width: 80}
	page.AddShownTexts(b.ShownTexts())
	if text := page.Text.String(); !strings.Contains(text, "disk") || !strings.Contains(text, "1.2 GB free") {
		t.Errorf("page %q", text)
	}
}
