package testkit

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Until waits for what no event tells. The n-th look is followed by a wait of n times what it took: many looks start a
// program, and would keep a core busy that the programs of the test need. A look that a busy host has held up is no
// reason to wait long: no wait is longer than a second, and the last look comes when the patience has ended.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	UntilFor(t, Patience, what, ok)
}

// UntilFor is Until with a patience of its own.
func UntilFor(t testing.TB, long time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(long)
	for n := time.Duration(1); ; n++ {
		began := time.Now()
		if ok() {
			return
		}
		if began.After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(min(max(time.Millisecond, n*time.Since(began)), time.Second))
	}
}

// ScrapeMetric returns a sample of a process, which serves its metrics at the URL. name is as it stands there, with its
// labels.
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
