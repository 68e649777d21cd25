package external

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// spoken starts a conversation with a simulated program. The function answer receives each line and its number,
// starting with 1, and returns the text that the program writes.
func spoken(t *testing.T, answer func(n int, line string) string) (c *frameConversation, killed chan struct{}) {
	in, theirs := net.Pipe()
	ours, out := net.Pipe()
	killed = make(chan struct{})
	once := false
	c = startConversation(in, ours, time.Minute, func() {
		if !once {
			once = true
			close(killed)
			_, _ = theirs.Close(), out.Close()
		}
	})
	go func() {
		lines := bufio.NewReader(theirs)
		for n := 1; ; n++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if text := answer(n, line); text != "" {
				if _, err := out.Write([]byte(text + "\n")); err != nil {
					return
				}
			}
		}
	}()
	t.Cleanup(func() { c.close(); c.killProgram() })
	return c, killed
}

// TestSilence checks that a program is killed if it sends nothing for its silence timeout, or for the grace period
// after a stop request. Progress frames must prevent this.
func TestSilence(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(n int, line string) string
		stop   time.Duration // time at which the stop request is sent; 0 means never
		want   string
		took   time.Duration
	}{
		"nothing": {func(int, string) string { return "" }, 0, "no output from the trainer for 1m0s", time.Minute},
		"nothing after stop": {func(int, string) string { return "" }, 10 * time.Second,
			"no output from the trainer for 5s",
			15 * time.Second},
		"an answer to stop": {func(n int, _ string) string {
			return map[int]string{2: `{"frame": "fitted", "id": 1, "steps": 3}`}[n]
		}, 10 * time.Second, "", 10 * time.Second},
		"its own refusal": {func(int, string) string { return `{"frame": "failed", "id": 1, "why": "no light"}` }, 0,
			"no light", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, killed := spoken(t, tt.answer)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.stop > 0 {
					time.AfterFunc(tt.stop, cancel)
				}
				began := time.Now()
				_, err := c.requestAnswer(ctx, 1, fitRequest{Frame: frameFit, ID: 1}, frameFitted)
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if fmt.Sprint(err) != "<nil>" && tt.want == "" || !strings.Contains(fmt.Sprint(err), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				dead := false
				select {
				case <-killed:
					dead = true
				default:
				}
				if want := strings.Contains(tt.want, "no output"); dead != want {
					t.Errorf("killed: %v, want %v", dead, want)
				}
			})
		})
	}
}

// TestProgress checks that progress frames keep a program running for hours, and after a stop request for at most the
// program's silence timeout.
func TestProgress(t *testing.T) {
	for every, tt := range map[time.Duration]struct {
		stop     time.Duration // time at which the stop request is sent; 0 means never
		want     string
		took     time.Duration
		patience time.Duration
	}{
		30 * time.Second: {0, "<nil>", 200 * 30 * time.Second, time.Minute},
		2 * time.Second:  {time.Hour, "<nil>", 200 * 2 * time.Second, time.Minute},
		// The program is killed one minute after the stop request, and five seconds after the last frame in that
		// minute.
		3 * time.Second: {100 * time.Second, "no output from the trainer for 5s", 164 * time.Second, time.Minute},
		// The program is killed five minutes after the stop request, whatever its silence timeout.
		4 * time.Second: {100 * time.Second, "no output from the trainer for 5s", 401 * time.Second, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			in, theirs := net.Pipe()
			ours, out := net.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := startConversation(in, ours, tt.patience, func() { _, _ = theirs.Close(), out.Close() })
			var program sync.WaitGroup
			defer program.Wait()
			defer c.killProgram()
			defer c.close()
			program.Go(func() {
				lines := bufio.NewReader(theirs)
				_, _ = lines.ReadString('\n')
				go func() { _, _ = lines.ReadString('\n') }() // Read the stop request.
				for range 200 {
					<-time.After(every)
					if _, err := out.Write([]byte(`{"frame": "progress", "id": 4, "later": {}}` + "\n")); err != nil {
						return
					}
				}
				_, _ = out.Write([]byte(`{"frame": "fitted", "id": 4, "steps": 9}` + "\n"))
			})
			if tt.stop > 0 {
				time.AfterFunc(tt.stop, cancel)
			}
			began := time.Now()
			_, err := c.requestAnswer(ctx, 4, fitRequest{Frame: frameFit, ID: 4}, frameFitted)
			if took := time.Since(began); !strings.Contains(fmt.Sprint(err), tt.want) || took != tt.took {
				t.Errorf("progress each %v: error %v after %v, want %s after %v", every, err, took, tt.want, tt.took)
			}
		})
	}
}
