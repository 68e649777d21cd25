package external

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// spoken is a conversation with a program that does as told: answer gets each line that comes, with its number from 1,
// and what it returns is written.
func spoken(t *testing.T, answer func(n int, line string) string) (c *conversation, killed chan struct{}) {
	in, theirs := net.Pipe()
	ours, out := net.Pipe()
	killed = make(chan struct{})
	once := false
	c = converse(in, ours, time.Minute, func() {
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
	t.Cleanup(func() { c.close(); c.kill() })
	return c, killed
}

// TestSilence: a program that says nothing for its timeout, or for the grace after stop, is killed; one that says
// progress is not.
func TestSilence(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(n int, line string) string
		stop   time.Duration // 0 = never
		want   string
		took   time.Duration
	}{
		"nothing": {func(int, string) string { return "" }, 0, "has said nothing for 1m0s", time.Minute},
		"nothing after stop": {func(int, string) string { return "" }, 10 * time.Second, "has said nothing for 5s",
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
				_, err := c.ask(ctx, 1, fit{Frame: frameFit, ID: 1}, frameFitted)
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
				if want := strings.Contains(tt.want, "nothing"); dead != want {
					t.Errorf("killed: %v, want %v", dead, want)
				}
			})
		})
	}
}

// TestProgress: progress of the request under way keeps a program alive, for hours.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, theirs := net.Pipe()
		ours, out := net.Pipe()
		c := converse(in, ours, time.Minute, func() { _, _ = theirs.Close(), out.Close() })
		defer c.kill()
		defer c.close()
		go func() {
			_, _ = bufio.NewReader(theirs).ReadString('\n')
			for range 200 {
				<-time.After(30 * time.Second)
				_, _ = out.Write([]byte(`{"frame": "progress", "id": 4, "steps": 1, "later": {}}` + "\n"))
			}
			_, _ = out.Write([]byte(`{"frame": "fitted", "id": 4, "steps": 9}` + "\n"))
		}()
		a, err := c.ask(t.Context(), 4, fit{Frame: frameFit, ID: 4}, frameFitted)
		if err != nil || a.Steps != 9 {
			t.Errorf("%+v, error %v", a, err)
		}
	})
}
