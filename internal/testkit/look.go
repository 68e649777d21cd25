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
// program, and would keep a core busy that the programs of the test need.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	began, n := time.Now(), time.Duration(1)
	for ; !ok(); began, n = time.Now(), n+1 {
		select {
		case <-time.After(max(time.Millisecond, n*time.Since(began))):
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// Metric returns a sample of a process, which serves its metrics at the URL. name is as it stands there, with its
// labels.
func Metric(t testing.TB, url, name string) float64 {
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
