package agentd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// certifiedBroker starts a broker whose certificate is valid between from and until. certifiedBroker returns the
// broker's URL and the certificate.
func certifiedBroker(t *testing.T, from, until time.Time) (url string, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server, err := broker.Start(broker.Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server.URL(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// announceAt publishes a retained announcement with the timestamp at.
func announceAt(t *testing.T, url string, ca []byte, topics mqtt.Topics, at time.Time) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	s, err := mqtt.Dial(t.Context(), mqtt.Options{URL: url, ClientID: "coordinator",
		TLS: &tls.Config{RootCAs: pool, Time: func() time.Time { return at }}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mqtttest.WantUp(t, s)
	sealKey, err := wire.SealSecret{1}.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	a := wire.Announcement{Attempt: 1, Phase: wire.PhaseIdle, Kind: wire.KindTraining, IssuedAt: uint64(at.Unix()),
		SealPublicKey: sealKey}
	sealed := wire.SignEnvelope(nil, wire.Header{Root: wire.FirstRootVersion, Type: wire.TypeAnnouncement,
		Federation: "plant",
		Sender:     wire.CoordinatorID, Epoch: 1, Run: 1, Round: 1, Sequence: 1}, a.Body(),
		hosts.TestKey(wire.CoordinatorID))
	if err := s.Publish(mqtt.Message{Topic: topics.Announcement(), Payload: sealed, Retained: true}); err != nil {
		t.Fatal(err)
	}
	mqtttest.SyncWithBroker(t, s)
}

// TestDeviceOf1970 checks a device whose clock starts in 1970. If the device knows the coordinator's time, it connects
// to a broker whose certificate is valid in 2026, unless the certificate has expired at the coordinator's time.
func TestDeviceOf1970(t *testing.T) {
	year := func(n int) time.Time { return time.Date(n, 1, 1, 0, 0, 0, 0, time.UTC) }
	in2026 := year(2026).Add(1000 * time.Hour)
	dir := t.TempDir()
	s := settings.DefaultAgent()
	s.Federation, s.ID, s.StateDir = "plant", "press", filepath.Join(dir, "state")
	s.Data.CSVPath = filepath.Join(dir, "none.csv")
	s.Identity = settings.AgentIdentity{KeyFile: filepath.Join(dir, "agent.key"),
		CoordinatorKey: keys.FormatPublic(hosts.PublicOf(wire.CoordinatorID))}
	if _, err := keys.CreateSigningKeyFile(s.Identity.KeyFile); err != nil {
		t.Fatal(err)
	}
	s.Broker.CAFile = filepath.Join(dir, "ca.crt")
	use := func(url string, ca []byte) {
		s.Broker.URLs = config.OneOrMore{url}
		if err := os.WriteFile(s.Broker.CAFile, ca, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	topics := hosts.TopicsOf(t, "plant")
	good, goodCA := certifiedBroker(t, year(2026), year(2027))
	announceAt(t, good, goodCA, topics, in2026)
	ended, endedCA := certifiedBroker(t, year(2024), year(2025))
	for _, tt := range []struct {
		what    string
		machine time.Time
		good    bool
		says    string
	}{
		{"a clock that was never right", time.Unix(7, 0), true, "is not yet valid: current time 1970-01-01"},
		{"a clock that is right", in2026, true, ""},
		{"in 1970 after that", time.Unix(7, 0), true, ""},
		{"in 1970, with a certificate that has ended", time.Unix(7, 0), false, "current time 2026-02-11"},
	} {
		if use(good, goodCA); !tt.good {
			use(ended, endedCA)
		}
		if got := until(t, &s, tt.machine); tt.says == "" && got != "obeyed" || !strings.Contains(got, tt.says) {
			t.Errorf("%s: %s; want %q", tt.what, got, tt.says)
		}
	}
}

// until runs an agent until it accepts an announcement or logs the reason why it does not connect.
func until(t *testing.T, s *settings.Agent, machine time.Time) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan string, 100)
	observe := testkit.Observer(func(f observe.Event) {
		if _, is := f.(agentround.AnnouncementObeyed); is {
			told <- "obeyed"
		}
	})
	log := slog.New(slog.NewTextHandler(lines(func(l string) {
		if strings.Contains(l, "x509") {
			told <- l
		}
	}), nil))
	done := make(chan error)
	begun := time.Now()
	go func() {
		done <- Run(ctx, s, Options{Logger: log, Observer: observe,
			Metrics: NewMetrics(metrics.NewRegistry("agentd"), ""),
			Now:     func() time.Time { return machine.Add(time.Since(begun)) }})
	}()
	var got string
	select {
	case got = <-told:
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	case err := <-done:
		t.Fatal(err)
	}
	return got
}

// lines is a writer that calls a function with each written line.
type lines func(string)

func (l lines) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l(string(line))
	}
	return len(p), nil
}
