package testkit

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/launch"
)

// Until polls ok until it returns true, and fails the test after Patience. what names the awaited condition in the
// failure message.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	UntilFor(t, Patience, what, ok)
}

// UntilFor is like Until, but with the given time limit.
func UntilFor(t testing.TB, long time.Duration, what string, ok func() bool) {
	t.Helper()
	if err := launch.Until(context.Background(), long, ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// ScrapeMetric reads a metrics page in Prometheus format and returns the value of one sample. name includes the labels
// exactly as on the page.
func ScrapeMetric(t testing.TB, url, name string) float64 {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
	}
	t.Fatalf("no %s in\n%s", name, text)
	return 0
}
