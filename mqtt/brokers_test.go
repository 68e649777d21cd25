package mqtt_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// testBroker is a broker that can be stopped and started at the same address.
type testBroker interface {
	url() string
	start(t *testing.T)
	stop()
}

// eachBroker runs a test against the embedded broker and Mosquitto.
func eachBroker(t *testing.T, test func(t *testing.T, b testBroker)) {
	eachBrokerOf(t, 128<<10, test)
}

// eachBrokerOf has them hang up on packets of more than maxPacket bytes.
func eachBrokerOf(t *testing.T, maxPacket int, test func(t *testing.T, b testBroker)) {
	for name, make := range map[string]func(*testing.T, int) testBroker{
		"embedded":  newEmbedded,
		"mosquitto": newMosquitto,
	} {
		t.Run(name, func(t *testing.T) {
			b := make(t, maxPacket)
			b.start(t)
			t.Cleanup(b.stop)
			test(t, b)
		})
	}
}

type embedded struct {
	options broker.Options
	server  *broker.Server
}

func newEmbedded(_ *testing.T, maxPacket int) testBroker {
	return &embedded{options: broker.Options{Listen: "127.0.0.1:0", MaxPacket: maxPacket}}
}

func (b *embedded) url() string { return "tcp://" + b.options.Listen }

func (b *embedded) start(t *testing.T) {
	t.Helper()
	server, err := broker.Start(b.options)
	if err != nil {
		t.Fatal(err)
	}
	b.server = server
	b.options.Listen = strings.TrimPrefix(server.URL(), "tcp://")
}

func (b *embedded) stop() { _ = b.server.Close() }

type mosquitto struct {
	binary, config, listen string
	process                *exec.Cmd
}

func newMosquitto(t *testing.T, maxPacket int) testBroker {
	t.Helper()
	binary, err := exec.LookPath("mosquitto")
	if err != nil {
		if binary = "/usr/sbin/mosquitto"; !isFile(binary) {
			if os.Getenv("CI") == "true" {
				t.Fatal("mosquitto is not installed, and CI needs it")
			}
			t.Skip("mosquitto is not installed")
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // for a free port
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	m := &mosquitto{binary: binary, listen: listener.Addr().String(), config: filepath.Join(t.TempDir(), "mosquitto.conf")}
	config := fmt.Sprintf("listener %s %s\nallow_anonymous true\nset_tcp_nodelay true\nmax_packet_size %d\n", port, host, maxPacket)
	if err := os.WriteFile(m.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (m *mosquitto) url() string { return "tcp://" + m.listen }

// start returns when Mosquitto says that it runs.
func (m *mosquitto) start(t *testing.T) {
	t.Helper()
	m.process = exec.Command(m.binary, "-c", m.config)
	output, err := m.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.process.Start(); err != nil {
		t.Fatal(err)
	}
	running := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), " running") {
				running <- true
			}
		}
		close(running)
	}()
	select {
	case ok := <-running:
		if !ok {
			t.Fatal("mosquitto ended")
		}
	case <-time.After(patience):
		t.Fatal("mosquitto does not start")
	}
}

func (m *mosquitto) stop() {
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
}
