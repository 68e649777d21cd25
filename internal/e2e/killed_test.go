package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// Size of a model with two hidden layers of 3160 units: modelBytes in bytes, and modelChunks in chunks.
const (
	modelBytes  = 40_005_604
	modelChunks = (modelBytes + wire.MaxChunkBytes - 1) / wire.MaxChunkBytes
)

// TestKilledInTransfer kills an agent while it downloads a model of 40 MB, and kills the coordinator while it receives
// the update. After their restarts, both must continue the transfer with the chunks that they have already received.
func TestKilledInTransfer(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgent(t, "one", plane(20))
	f.ConfigureCoordinator(t,
		"{name: plane, features: [a, b], target: y, standardize: false, model: {kind: mlp, hidden: [3160, "+
			"3160]}, steps: {budget: 100ms, min: 1, max: 1}}",
		list,
		`{participants: 1, quorum: 1, rounds: 1, deadline: 5m, gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
	seen := watchUploads(t, f.Broker)
	lead := f.Daemon(t, "coordinator", "coordinator")
	// The transfer in each direction takes two seconds. The rate is limited by a proxy in this process, so a transfer
	// also pauses while this process gets no CPU time.
	set := []string{"--set", "metrics.listen=127.0.0.1:0", "--set",
		"broker.url=tcp://" + brokers.NewSlowProxy(t, strings.TrimPrefix(f.Broker, "tcp://"), 20_000_000)}
	one := f.Daemon(t, "agentd", "one", set...)

	testkit.Until(t, "a part of the model is on disk",
		func() bool { return onDisk(f.Path("state-one/model.part")) > modelBytes/8 })
	one.Kill()
	had := onDisk(f.Path("state-one/model.part"))
	if had >= modelBytes {
		t.Fatalf("the agent was killed too late: it had %d bytes", had)
	}
	one = f.Daemon(t, "agentd", "one", set...)
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(one.Await(t, "serving metrics"))[1]

	testkit.Until(t, "a part of the update is sent", func() bool { return seen.Load() >= modelChunks/8 })
	lead.Kill()
	fetched := testkit.ScrapeMetric(t, url, `agentd_mqtt_payload_bytes_total{direction="received",kind="blob"}`)
	if most := float64(modelBytes-had) + 16*wire.MaxMessage; fetched > most || fetched == 0 {
		t.Errorf("the agent fetched %v bytes after it was killed with %d of %d, want at most %v", fetched, had,
			modelBytes, most)
	}
	before := seen.Load()
	if before >= modelChunks {
		t.Fatalf("the coordinator was killed too late: %d chunks had been sent", before)
	}
	lead = f.Daemon(t, "coordinator", "coordinator")
	lead.Await(t, "run finished version=1")
	if again := seen.Load() - before; again > modelChunks-before+3*16 {
		t.Errorf("%d chunks were sent after the coordinator was killed at %d of %d", again, before, modelChunks)
	}
	one.Stop(t, syscall.SIGTERM, 0)
	lead.Stop(t, syscall.SIGTERM, 0)
}

// onDisk returns the number of bytes of a file that have been written. onDisk does not count holes in the file.
func onDisk(path string) int {
	info, err := os.Stat(filepath.FromSlash(path))
	if err != nil {
		return 0
	}
	return int(info.Sys().(*syscall.Stat_t).Blocks) * 512
}

// watchUploads counts the update chunks that the broker forwards.
func watchUploads(t *testing.T, url string) *atomic.Int64 {
	t.Helper()
	conn, err := mqtt.Dial(t.Context(),
		mqtt.Options{URL: url, ClientID: "observer", MailboxMessages: 4096, MailboxBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	conn.Subscribe(mqtt.AtMostOnce, "fl/v1/e2e/u/#")
	var n atomic.Int64
	go func() {
		for e := range conn.Events() {
			if m, ok := e.(mqtt.MessageReceived); ok && !strings.HasSuffix(m.Topic, "/m") {
				n.Add(1)
			}
		}
	}()
	return &n
}
