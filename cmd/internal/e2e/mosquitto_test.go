package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// freeAddress returns an address where nobody listens, for now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// mosquitto starts a broker until the test ends, and returns its URL. Lines are
// added to its configuration.
func mosquitto(t *testing.T, lines ...string) string {
	t.Helper()
	for range 5 { // another process may take the port meanwhile
		address := freeAddress(t)
		if mosquittoAt(t, address, lines...) {
			return "tcp://" + address
		}
	}
	t.Fatal("mosquitto does not start")
	return ""
}

func mosquittoAt(t *testing.T, address string, lines ...string) (running bool) {
	t.Helper()
	binary, err := exec.LookPath("mosquitto")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/mosquitto"); err != nil { // where Debian hides it from all but root
			if os.Getenv("CI") == "true" {
				t.Fatal("mosquitto is not installed, and CI needs it")
			}
			t.Skip("mosquitto is not installed")
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "mosquitto.conf")
	text := fmt.Sprintf("listener %s %s\nallow_anonymous true\nset_tcp_nodelay true\n%s\n", port, host, strings.Join(lines, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-c", config)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started := make(chan bool, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			if strings.HasSuffix(s.Text(), " running") {
				started <- true
			}
		}
		close(started)
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	select {
	case running = <-started:
		return running
	case <-time.After(patience):
		t.Fatal("mosquitto neither starts nor ends")
		return false
	}
}

// retained returns what the broker keeps, by topic.
func retained(t *testing.T, url string) map[string][]byte {
	t.Helper()
	conn, err := mqtt.Dial(t.Context(), mqtt.Options{URL: url, ClientID: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Subscribe(mqtt.AtLeastOnce, "#")
	kept := map[string][]byte{}
	deadline := time.After(patience)
	for {
		select {
		case e := <-conn.Events():
			switch e := e.(type) {
			case mqtt.Up: // what is retained comes before this
				if err := conn.Publish(mqtt.Message{Topic: "end", QoS: mqtt.AtLeastOnce, Payload: []byte("of what is retained")}); err != nil {
					t.Fatal(err)
				}
			case mqtt.Received:
				if e.Topic == "end" {
					return kept
				}
				if e.Retained {
					kept[e.Topic] = slices.Clone(e.Payload)
				}
			}
		case <-deadline:
			t.Fatal("the broker does not answer")
		}
	}
}
