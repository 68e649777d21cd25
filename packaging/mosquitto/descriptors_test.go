package mosquitto_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// systemdDescriptors is what a service may have open unless its unit says otherwise.
const systemdDescriptors = 1024

// Connections that say nothing do not keep the devices out: with our drop-in, but they do without it.
func TestIdleConnections(t *testing.T) {
	limit := regexp.MustCompile(`(?m)^LimitNOFILE=([0-9]+)$`).FindSubmatch(mosquitto.DropIn)
	if limit == nil {
		t.Fatalf("no limit in\n%s", mosquitto.DropIn)
	}
	raised, err := strconv.Atoi(string(limit[1]))
	if err != nil {
		t.Fatal(err)
	}
	for descriptors, comesIn := range map[int]bool{systemdDescriptors: false, raised: true} {
		t.Run(strconv.Itoa(descriptors), func(t *testing.T) {
			p, a, with := secured(t, everyone(t))
			p.MaxOpenFiles = descriptors
			p.Start(t)
			for range systemdDescriptors {
				conn, err := net.Dial("tcp", p.Address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			// A connection that overflowed Mosquitto's queue counts as made here, and reaches Mosquitto seconds later.
			// The last descriptor is its spare one: with it, it accepts whom it then refuses.
			testkit.Until(t, "Mosquitto holds the idle connections",
				func() bool { return p.OpenFiles() >= systemdDescriptors-1 })
			o := with(a.Issue(t, "air-press"))
			o.ConnectTimeout = 2 * time.Second
			failure, s := acltest.Attempt(t, o)
			if s != nil {
				_ = s.Close()
			}
			if (s != nil) != comesIn {
				t.Errorf("beside %d idle connections a device comes in: %v (%s), want %v", systemdDescriptors, s != nil,
					failure, comesIn)
			}
		})
	}
}

// systemd knows all lines of the drop-in. It ignores lines that it does not know, with a warning.
func TestDropInIsUnderstood(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"mosquitto.service":                []byte("[Service]\nExecStart=/bin/true\n"),
		"mosquitto.service.d/fedmesh.conf": mosquitto.DropIn,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", filepath.Join(dir, "mosquitto.service"))
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	if said, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(said), dir) {
		t.Errorf("%v\n%s", err, said)
	}
}
