package status

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
)

// TestHungProcess requests the status from a process that accepts connections but does not answer, like a process
// stopped by SIGSTOP. The request must fail after the timeout.
func TestHungProcess(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", api.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = fetchStatus(t.Context(), "coordinator", dir, true, 0, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(),
		"coordinator uses the state folder "+dir+" but did not reply within 1ms") ||
		!strings.Contains(err.Error(), "coordinator service restart") {
		t.Errorf("got %v", err)
	}
}

// TestSparkline checks that the smallest number gets the lowest bar and the largest number gets the highest bar.
func TestSparkline(t *testing.T) {
	for want, xs := range map[string][]float64{"": nil, "▁": {3}, "▁▁": {3, 3}, "█▁▅": {8, 1, 5}} {
		if got := Sparkline(xs); got != want {
			t.Errorf("%v gives %q, want %q", xs, got, want)
		}
	}
}

// TestParagraph checks that the page contains the complete text, even if it has very long words.
func TestParagraph(t *testing.T) {
	p := Page{Width: labelWidth + 12}
	p.AddParagraph("!", "cannot save /var/lib/coordinator/run: no space left")
	want := "!             cannot save\n              /var/lib/coo\n              rdinator/run\n              : no " +
		"space\n              left\n"
	if got := p.Text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestLongLabel checks that there is a space between the text and a label that is as long as the label column.
func TestLongLabel(t *testing.T) {
	p := Page{Width: 40}
	p.AddLine("  hall_temperature", "%d used", 3)
	p.AddParagraph("  hall_temperature", "310 used, 88 missing")
	const want = "  hall_temperature 3 used\n  hall_temperature\n              310 used, 88 missing\n"
	if got := p.Text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
