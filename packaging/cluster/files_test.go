package cluster_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/packaging/cluster"
)

// TestUnit checks the systemd unit with systemd-analyze verify. It replaces the programs and users in the unit by
// programs and users that exist on the test machine.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("systemd-analyze is not installed, and CI needs it (Debian's package systemd)")
		}
		t.Skip("systemd-analyze is not installed (Debian's package systemd)")
	}
	text := strings.NewReplacer("/usr/local/bin/nats-server", "/bin/true",
		"=nats\nGroup=nats", "=daemon\nGroup=daemon").Replace(string(cluster.Unit))
	path := filepath.Join(t.TempDir(), "nats-server.service")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=25", path).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	for _, folder := range regexp.MustCompile(`/var/lib/\w+`).FindAllString(string(cluster.Conf), -1) {
		if folder != "/var/lib/coordinator" && !strings.Contains(text, "StateDirectory="+filepath.Base(folder)+"\n") {
			t.Errorf("the unit makes no folder %s", folder)
		}
	}
}

// TestCompose compares compose.yml with nats.conf without starting containers. Each server must have the name and the
// files that nats.conf requires. Each coordinator must have its own name and state.
func TestCompose(t *testing.T) {
	type service struct {
		Image, User, Restart, Hostname string
		Command, Volumes               []string
		DependsOn                      []string `yaml:"depends_on"`
		Healthcheck                    struct{ Disable bool }
		Networks                       map[string]struct{ Aliases []string }
	}
	var file struct {
		NATS        service `yaml:"x-nats"`
		Coordinator service `yaml:"x-coordinator"`
		Services    map[string]service
	}
	if err := yaml.UnmarshalWithOptions(cluster.Compose, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 6 {
		t.Errorf("%d services", len(file.Services))
	}
	// wantFiles checks that every path in a configuration is mounted from the host, and that each host path is used
	// only once.
	taken := map[string]string{}
	wantFiles := func(name string, paths ...string) {
		for _, path := range paths {
			i := slices.IndexFunc(file.Services[name].Volumes, func(v string) bool {
				_, inside, _ := strings.Cut(v, ":")
				return strings.TrimSuffix(inside, ":ro") == path
			})
			if i < 0 {
				t.Errorf("%s has no %s", name, path)
				continue
			}
			outside, _, _ := strings.Cut(file.Services[name].Volumes[i], ":")
			if other, is := taken[outside]; is && !strings.HasSuffix(outside, "/ca.crt") {
				t.Errorf("%s and %s share %s", name, other, outside)
			}
			taken[outside] = name
		}
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		s := file.Services[n]
		if !slices.Equal(s.Command, []string{"--config", "/etc/nats/nats.conf", "--name", n}) || s.Image == "" {
			t.Errorf("%s runs %q of %q", n, s.Command, s.Image)
		}
		if host := n + ".example"; !slices.Contains(s.Networks["default"].Aliases, host) ||
			!strings.Contains(string(cluster.Conf), "nats://"+host+":6222") {
			t.Errorf("%s is not %s to the others", n, host)
		}
		wantFiles(n, slices.Compact(slices.Sorted(slices.Values(regexp.MustCompile(`/etc/nats/[\w.]+|/var/lib/nats`).
			FindAllString(string(cluster.Conf), -1))))...)
	}
	for _, c := range []string{"c1", "c2", "c3"} {
		// The default command of the image reads /etc/coordinator/coordinator.yaml.
		if s := file.Services[c]; s.Hostname != c || s.Command != nil ||
			s.Image != "ghcr.io/fedmesh/coordinator:${VERSION}" || !s.Healthcheck.Disable {
			t.Errorf("%s has the name %q, runs %q of %q, health check %+v", c, s.Hostname, s.Command, s.Image,
				s.Healthcheck)
		}
		wantFiles(c, "/etc/coordinator", "/var/lib/coordinator")
	}
}

// TestCertificates runs the commands from the README. The certificate of a server must contain the server's DNS name.
// The certificate of a coordinator must contain no DNS name.
func TestCertificates(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("openssl is not installed, and CI needs it")
		}
		t.Skip("openssl is not installed")
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, commands, found := strings.Cut(string(readme), "```sh\n")
	commands, _, closed := strings.Cut(commands, "```")
	if !found || !closed {
		t.Fatal("the README has no commands")
	}
	sh := exec.Command("/bin/sh", "-ec", commands)
	sh.Dir = t.TempDir()
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	roots := x509.NewCertPool()
	load := func(name string) *x509.Certificate {
		text, err := os.ReadFile(filepath.Join(sh.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	roots.AddCert(load("ca.crt"))
	for _, n := range []string{"n1", "n2", "n3"} {
		if _, err := load(n + ".crt").Verify(x509.VerifyOptions{Roots: roots, DNSName: n + ".example"}); err != nil {
			t.Error(err)
		}
	}
	c := load("nats.crt")
	_, err = c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if user := `"` + c.Subject.String() + `"`; err != nil || len(c.DNSNames) > 0 ||
		!strings.Contains(string(cluster.Conf), "user: "+user) {
		t.Errorf("%s with the names %q, %v", user, c.DNSNames, err)
	}
}

// TestConf checks nats.conf with nats-server, which warns about values that it may misinterpret.
func TestConf(t *testing.T) {
	n := brokers.NewShippedNATS(t, string(cluster.Conf), acltest.NewAuthority(t))
	file := filepath.Join(n.Nodes[0].Dir, "nats.conf")
	out, err := exec.Command(brokers.NATSServer(t), "-t", "-c", file).CombinedOutput()
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || len(lines) != 1 ||
		!strings.Contains(lines[0], "is valid") {
		t.Errorf("%v: %s", err, out)
	}
}
