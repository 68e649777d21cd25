package e2e

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestLatin1Header runs an agent without a coordinator on a file whose header is encoded in Latin-1. Each column is an
// input, and the name of each input becomes the label of a metric.
func TestLatin1Header(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.AddAgent(t, "one", plane(20))
	text, err := os.ReadFile(f.Path("one.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.Write(t, "logger.csv", "time,temp,Temp (\xb0C)\n"+
		"2026-03-01T00:00:00Z,20.0,20.0\n2026-03-01T01:00:00Z,21.4,21.4\n")
	f.Write(t, "one.yaml", strings.Replace(string(text), "data: {csv: "+f.Path("one.csv")+"}", `
data: {source: lines, format: csv, command: [/bin/sh, -c, 'cat `+f.Path("logger.csv")+`; sleep 600'], time: time}`, 1))
	one := f.Daemon(t, "agentd", "one", "--set", "metrics.listen=127.0.0.1:0")
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(one.Await(t, "serving metrics"))[1]
	testkit.Until(t, "the values are counted", func() bool {
		r, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		metrics, err := io.ReadAll(r.Body)
		return err == nil && strings.Contains(string(metrics),
			`agentd_data_values_total{input="Temp (°C)",result="used"} 2`) &&
			strings.Contains(string(metrics), `agentd_data_values_total{input="temp",result="used"} 2`)
	})
	one.Stop(t, syscall.SIGTERM, 0)
}
