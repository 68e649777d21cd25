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

// systemdDescriptors is systemd's default limit of open files for a service.
const systemdDescriptors = 1024

// TestIdleConnections checks many idle connections. With the default limit of open files, they must prevent devices
// from connecting. With the systemd drop-in that we ship, devices must be able to connect.
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
			// A new connection may wait for seconds in Mosquitto's full queue. Mosquitto reserves its last file
			// descriptor for accepting connections that it then rejects.
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

// TestDropInIsUnderstood checks that systemd knows all lines of the drop-in file. The test is necessary, because
// systemd only warns about unknown lines.
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
