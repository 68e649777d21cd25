package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/replica/jetstream"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestCertificatesReplaced checks that new connections to NATS use replaced certificate files without a restart, even
// if another authority issued the certificates.
func TestCertificatesReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	issue := func() {
		t.Helper()
		authority := acltest.NewAuthority(t)
		files := map[string][]byte{"ca": authority.PEM()}
		files["server"], files["server.key"] = acltest.PEMOf(t, authority.Issue(t, "server"))
		files["own"], files["own.key"] = acltest.PEMOf(t, authority.Issue(t, "coordinator"))
		for name, text := range files {
			if err := os.WriteFile(file(name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue()
	engine := brokers.NewNATS(t, 1, 0, fmt.Sprintf("tls {ca_file: %q, cert_file: %q, key_file: %q, verify: true}",
		file("ca"), file("server"), file("server.key")))
	engine.Start(t)

	s := &coordinatorsettings.ConfigFile{Federation: "plant"}
	s.Cluster = coordinatorsettings.Cluster{NATSURLs: []string{"tls://" + engine.Nodes[0].Client},
		ConfiguredReplicaName: "one",
		StateCopies:           1,
		CAFile:                file("ca"), CertFile: file("own"), KeyFile: file("own.key")}
	opened, err := natsStoreOpener(slog.New(slog.DiscardHandler))(s)
	if err != nil {
		t.Fatal(err)
	}
	store := opened.(*jetstream.KeyValueStore)
	t.Cleanup(store.Close)
	for _, replaced := range []bool{false, true} {
		if replaced {
			engine.Kill()
			issue()
			engine.Start(t)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		for {
			if _, err = store.Keys(ctx); err == nil {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("no link: %v", err)
			}
		}
		cancel()
	}
}
