//go:build nightly && linux

package broker_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

const (
	mebibyte  = 1 << 20
	modelSize = 40_000_000
	chunkSize = 60 << 10
	chunks    = (modelSize + chunkSize - 1) / chunkSize
	pullers   = 50
	pullAhead = 8 // chunks
	serveEnv  = "FEDMESH_TEST_SERVE"
)

// TestServe is the broker of TestMemory, in a process of its own: it serves
// until its input ends.
func TestServe(t *testing.T) {
	if os.Getenv(serveEnv) == "" {
		return
	}
	s := start(t, broker.Options{})
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// The broker's memory is what it has when idle, the model, and 64 MiB for 50
// clients that pull it; and up to 8 MiB for each that is slow. That takes a
// GOMEMLIMIT, as doc.go asks for: without one Go collects later, and the first
// case needs some 130 MiB instead of 100.
func TestMemory(t *testing.T) {
	for _, slow := range []int{0, 8} {
		t.Run(fmt.Sprint(slow, " slow"), func(t *testing.T) {
			needed := modelSize + slow*8*mebibyte
			url, memory := serve(t, needed+56*mebibyte)
			idle := memory("VmRSS")
			publisher := dial(t, mqtt.Options{URL: url, ClientID: "publisher"})
			publisher.Subscribe(mqtt.AtMostOnce, "next")
			for k := range chunks { // one at a time, since the outbox is bounded
				payload := make([]byte, min(chunkSize, modelSize-k*chunkSize))
				for _, m := range []mqtt.Message{{Topic: chunk(k), Payload: payload, Retained: true}, {Topic: "next"}} {
					if err := publisher.Publish(m); err != nil {
						t.Fatal(err)
					}
				}
				received(t, publisher)
			}
			_ = publisher.Close()
			for i := range slow {
				dawdle(t, url, fmt.Sprint("slow ", i))
			}
			var all sync.WaitGroup
			for i := range pullers {
				c := dial(t, mqtt.Options{URL: url, ClientID: fmt.Sprint("puller ", i)})
				all.Go(func() { pull(t, c) })
			}
			all.Wait()
			peak, most := memory("VmHWM"), idle+needed+64*mebibyte
			t.Logf("idle %d MiB, peak %d MiB, bound %d MiB", idle/mebibyte, peak/mebibyte, most/mebibyte)
			if peak > most {
				t.Errorf("%d MiB too many", (peak-most)/mebibyte)
			}
		})
	}
}

// serve starts the broker's process, with a limit on Go's memory in bytes. It returns its URL, and what reads a line
// of its status, in bytes.
func serve(t *testing.T, limit int) (url string, memory func(line string) int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServe$")
	cmd.Env = append(os.Environ(), serveEnv+"=1", fmt.Sprint("GOMEMLIMIT=", limit))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if url, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url), func(line string) int {
		t.Helper()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(status), line+":")
		kib, err := strconv.Atoi(strings.Fields(after)[0])
		if err != nil {
			t.Fatal(err)
		}
		return kib << 10
	}
}

func chunk(k int) string { return fmt.Sprintf("fl/v1/air/m/0a1b/%d", k) }

// pull fetches all chunks, a few at a time, as package transfer does.
func pull(t *testing.T, c *mqtt.Session) {
	next := 0
	more := func() {
		if next < chunks {
			c.Subscribe(mqtt.AtMostOnce, chunk(next))
			next++
		}
	}
	for range pullAhead {
		more()
	}
	for range chunks {
		select {
		case e := <-c.Events():
			m, ok := e.(mqtt.Received)
			if !ok {
				t.Errorf("got %#v, want a chunk", e)
				return
			}
			c.Unsubscribe(m.Topic)
		case <-time.After(patience):
			t.Error("no chunk in time")
			return
		}
		more()
	}
}

// dawdle asks for nearly as much as may wait for a client, and reads nothing.
func dawdle(t *testing.T, url, id string) {
	t.Helper()
	c := rawDialURL(t, url)
	c.connect(id)
	p := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
	p.MessageID = 1
	for k := range 8 * mebibyte / (chunkSize + 100) {
		p.Topics, p.Qoss = append(p.Topics, chunk(k)), append(p.Qoss, 0)
	}
	c.send(p)
}
