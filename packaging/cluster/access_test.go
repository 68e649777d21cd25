package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	api "github.com/nats-io/nats.go/jetstream"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/replica/jetstream"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/packaging/cluster"
)

// patience is the timeout for servers that have just started.
const patience = 2 * time.Minute

const bucket = "fedmesh_plant_7"

// plant is a cluster of three NATS servers that has accounts for two federations.
type plant struct {
	*brokers.NATS
	authority *acltest.Authority
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	before, account, found := strings.Cut(string(cluster.Conf), "  PLANT_7 {\n")
	account, after, closed := strings.Cut(account, "\n  }\n}\n")
	if !found || !closed {
		t.Fatal("nats.conf has no account PLANT_7")
	}
	if account = strings.Replace(account, "max_file: 8GB", "max_file: 4MB", 1); !strings.Contains(account, "4MB") {
		t.Fatal("the account has no bound")
	}
	account = "  PLANT_7 {\n" + account + "\n  }\n"
	p := &plant{authority: acltest.NewAuthority(t)}
	p.NATS = brokers.NewShippedNATS(t, before+account+
		strings.NewReplacer("PLANT_7", "PLANT_8", "plant_7", "plant_8").Replace(account)+"}\n"+after, p.authority)
	p.Start(t)
	return p
}

func (p *plant) urls() (urls []string) {
	for _, node := range p.Nodes {
		urls = append(urls, "tls://"+node.Client)
	}
	return urls
}

// as returns a connection option that authenticates with the given client certificates.
func (p *plant) as(certificates ...tls.Certificate) nats.Option {
	return nats.Secure(&tls.Config{RootCAs: p.authority.Pool(), Certificates: certificates,
		MinVersion: tls.VersionTLS13})
}

// store opens the key-value bucket of the federation plant_7.
func (p *plant) store(t *testing.T, as ...nats.Option) *jetstream.KeyValueStore {
	t.Helper()
	s, err := jetstream.Open(jetstream.Options{URLs: p.urls(), Bucket: bucket, StreamReplicas: 3,
		Logger: slog.New(slog.DiscardHandler), ConnectOptions: as})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestAccess runs three NATS servers with the configuration that we ship. It checks the permissions of coordinators and
// of other clients.
func TestAccess(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	own := p.authority.Issue(t, "plant_7-coordinator")
	s := p.store(t, p.as(own))
	testkit.Until(t, "the servers have elected a leader of the stream", func() bool {
		_, err := s.Put(ctx, "ready", nil, 0)
		// after a conflict, the value of an earlier attempt was stored
		return err == nil || errors.Is(err, replica.ErrConflict)
	})
	if err := s.Remove(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	t.Run("a coordinator does all that it must", func(t *testing.T) { mayAll(ctx, t, s) })
	t.Run("and nothing else", func(t *testing.T) { p.refusesMore(t, own) })
	for name, certificates := range map[string][]tls.Certificate{
		"without a certificate": nil,
		"unknown user":          {p.authority.Issue(t, "plant_7-site")},
		"another authority":     {acltest.NewAuthority(t).Issue(t, "plant_7-coordinator")},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := nats.Connect(strings.Join(p.urls(), ","), p.as(certificates...))
			if err == nil {
				conn.Close()
				t.Error("is let in")
			}
		})
	}
	t.Run("another federation", func(t *testing.T) {
		p.wantRefused(t, p.authority.Issue(t, "plant_8-coordinator"), map[string]string{
			"$JS.API.STREAM.INFO.KV_" + bucket: "", "$JS.API.STREAM.CREATE.KV_" + bucket: "",
			"$JS.API.STREAM.MSG.GET.KV_" + bucket: `{"last_by_subj":"$KV.fedmesh_plant_7.head"}`,
			"$KV." + bucket + ".head":             "theirs",
		})
	})
	if value, _, err := s.Get(ctx, "head"); err != nil || string(value) != "ours" {
		t.Errorf("the value is %q then, %v", value, err)
	}
	t.Run("a coordinator is no server", p.refusesRoute)
	t.Run("the account is bounded", func(t *testing.T) { wantBounded(ctx, t, s) })
}

// mayAll checks that the client may call all methods of the store, even with the largest value. mayAll stores the value
// "ours" under the key "head".
func mayAll(ctx context.Context, t *testing.T, s *jetstream.KeyValueStore) {
	t.Helper()
	large := bytes.Repeat([]byte{1}, replica.MaxValue)
	first, err := s.Put(ctx, "head", large, 0)
	if err != nil {
		t.Fatal(err)
	}
	if value, _, err := s.Get(ctx, "head"); err != nil || !bytes.Equal(value, large) {
		t.Errorf("%d bytes are back, %v", len(value), err)
	}
	if _, err := s.Put(ctx, "head", []byte("ours"), first); err != nil {
		t.Error(err)
	}
	if _, err := s.Put(ctx, "piece.1", large, 0); err != nil {
		t.Error(err)
	}
	if err := s.Remove(ctx, "piece.1"); err != nil {
		t.Error(err)
	}
	if keys, err := s.Keys(ctx); err != nil || len(keys) != 1 {
		t.Errorf("the keys are %q, %v", keys, err)
	}
}

// refusesMore checks that a coordinator may not use subjects that it does not need.
func (p *plant) refusesMore(t *testing.T, own tls.Certificate) {
	t.Helper()
	p.wantRefused(t, own, map[string]string{
		"$JS.API.STREAM.DELETE.KV_" + bucket: "", "$JS.API.STREAM.UPDATE.KV_" + bucket: "{}",
		"$JS.API.STREAM.CREATE.other": "{}", "$JS.API.CONSUMER.CREATE.KV_" + bucket: "{}", "elsewhere": "x",
	})
}

// wantRefused publishes messages and checks that the server rejects each of them with a permission error. It also
// checks that the server rejects a subscription to the subjects of the bucket.
func (p *plant) wantRefused(t *testing.T, who tls.Certificate, messages map[string]string) {
	t.Helper()
	refused := make(chan error, 100)
	conn, err := nats.Connect(strings.Join(p.urls(), ","), p.as(who), nats.Timeout(patience),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	inbox := conn.NewRespInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for subject, message := range messages {
		if err := conn.PublishRequest(subject, inbox, []byte(message)); err != nil {
			t.Fatal(err)
		}
		// The rejection arrives before the reply to the flush.
		if err := conn.FlushTimeout(patience); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(strings.ToLower(err.Error()),
				strings.ToLower(`"`+subject+`"`)) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s is not refused", subject)
		}
	}
	if n, _, err := answers.Pending(); err != nil || n > 0 {
		t.Errorf("%d answers came, %v", n, err)
	}
	if _, err := conn.SubscribeSync("$KV." + bucket + ".>"); err != nil {
		t.Fatal(err)
	}
	if err := conn.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it may listen to what is written")
	}
}

// refusesRoute checks that a server accepts a cluster route from another server, and rejects a cluster route from a
// coordinator.
func (p *plant) refusesRoute(t *testing.T) {
	t.Helper()
	answer := func(who tls.Certificate) string {
		conn, err := tls.Dial("tcp", p.Nodes[0].Route, &tls.Config{RootCAs: p.authority.Pool(),
			Certificates: []tls.Certificate{who}, MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte("CONNECT {\"name\":\"n4\",\"cluster\":\"fedmesh\"}\r\nPING\r\n")); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			if line := lines.Text(); strings.HasPrefix(line, "-ERR") || line == "PONG" {
				return line
			}
		}
		return fmt.Sprint("the end, ", lines.Err())
	}
	if got := answer(p.authority.Issue(t, "n4", "localhost")); got != "PONG" {
		t.Errorf("to a server: %q", got)
	}
	if got := answer(p.authority.Issue(t, "plant_7-coordinator")); got != "-ERR 'Authorization Violation'" {
		t.Errorf("to a coordinator: %q", got)
	}
}

// wantBounded checks the storage limit of 4 MB, which is enough for five of the largest values with three copies each.
// The servers report their usage to each other with a delay, so a few more values may fit.
func wantBounded(ctx context.Context, t *testing.T, s *jetstream.KeyValueStore) {
	t.Helper()
	for i := range 500 {
		_, err := s.Put(ctx, fmt.Sprint("piece.", i), make([]byte, replica.MaxValue), 0)
		if err == nil {
			continue
		}
		var refused *api.APIError
		if !errors.As(err, &refused) || i < 5 {
			t.Errorf("value %d: %v", i+1, err)
		}
		t.Logf("value %d: %v", i+1, err)
		return
	}
	t.Error("the account takes more than 300 MB")
}
