package daemon

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/logging"
)

// TestEnding checks that the shutdown is logged in this order: the signal, the number of suppressed lines, and
// "stopped".
func TestEnding(t *testing.T) {
	for _, stopped := range []bool{true, false} {
		var out bytes.Buffer
		log, err := logging.New(&out, logging.Options{Level: "info", Format: "text", WritesToJournald: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		over := LogShutdown(ctx, log)
		for range 12 {
			log.Info("round closed")
		}
		out.Reset()
		if stopped {
			cancel(errors.New("terminated signal received"))
		}
		over()
		cancel(nil)
		got := out.String()
		if want := "<6>INFO  round closed: suppressed 2 times in the last minute\n"; !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
		lines := strings.Split(strings.TrimSpace(got), "\n")
		first, last := strings.Contains(lines[0], `stopping`) &&
			strings.Contains(lines[0], "terminated signal received"),
			strings.Contains(lines[len(lines)-1], "INFO  stopped took=")
		if first != stopped || last != stopped || len(lines) != map[bool]int{true: 3, false: 1}[stopped] {
			t.Errorf("stopped %v: the log is\n%s", stopped, got)
		}
	}
}
