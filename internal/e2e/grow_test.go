package e2e

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestGrowingFile appends rows to the data file of a training agent, damages the file, and repairs it again.
func TestGrowingFile(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.lead(t, f.AddAgent(t, "one", plane(20))+f.AddAgent(t, "two", plane(20)),
		`{participants: 2, quorum: 1, rounds: 0, deadline: 2s, pause: 100ms, weights: samples, `+
			`gather: {target: 2, minimum: 1, within: 2s, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	one := f.Daemon(t, "agentd", "one", "--set", "metrics.listen=127.0.0.1:0")
	two := f.Daemon(t, "agentd", "two")
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(one.Await(t, "serving metrics"))[1]
	one.Await(t, "local training finished")
	if n := testkit.ScrapeMetric(t, url, "agentd_samples"); n != 20 {
		t.Errorf("%v rows", n)
	}
	grown := plane(27)
	put(t, f.Path("one.csv"), os.O_APPEND, strings.TrimPrefix(grown, plane(20))+"1,2")
	one.Await(t, "local data have grown agent=one task=plane rows=27 rows_before=20")
	testkit.Until(t, "its metric says so", func() bool { return testkit.ScrapeMetric(t, url, "agentd_samples") == 27 })

	put(t, f.Path("one.csv"), os.O_APPEND, ",3,4\n1,2,3\n")
	one.Await(t, `4 fields, but the header has 3`) // the agent skips only this line
	if n := testkit.ScrapeMetric(t, url, "agentd_samples"); n != 28 {
		t.Errorf("%v rows beside a malformed line", n)
	}
	put(t, f.Path("one.csv"), os.O_TRUNC, plane(25))
	one.Await(t, "the file was truncated")
	one.Await(t, "rows=25 rows_before=28")
	testkit.Until(t, "its metric says so", func() bool { return testkit.ScrapeMetric(t, url, "agentd_samples") == 25 })
	for _, p := range []*testkit.Process{one, two, lead} {
		p.Stop(t, syscall.SIGTERM, 0)
	}
	if strings.Contains(lead.Log(), "malformed") {
		t.Errorf("an update was refused:\n%s", lead.Log())
	}
}

// put opens an existing file with the given flag and writes text to it.
func put(t *testing.T, path string, flag int, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|flag, 0)
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
