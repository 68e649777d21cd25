package simulate

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var screen bytes.Buffer
	p := newProgress(&screen)
	p.show(time.Second)
	p.done.Store(250)
	p.total.Store(1000)
	p.show(10 * time.Second)
	if got, want := screen.String(), "preparing …\n25 %  250 of 1000 rounds  30s left\n"; got != want {
		t.Errorf("in a file:\n%q, want\n%q", got, want)
	}
	for _, width := range []int{100, 45, 20, 1, 0} {
		screen.Reset()
		p.width = func() int { return width }
		p.show(10 * time.Second)
		line := strings.TrimSuffix(strings.TrimPrefix(screen.String(), "\r"), "\x1b[K")
		if n := len([]rune(line)); n >= max(width, 1) {
			t.Errorf("%d signs on a terminal of %d", n, width)
		}
		if width == 100 && line != strings.Repeat("█", 7)+strings.Repeat("░",
			23)+"  25 %  250 of 1000 rounds  30s left" {
			t.Errorf("on a terminal: %q", line)
		}
	}
	for d, want := range map[time.Duration]string{1700 * time.Millisecond: "2s", 128 * time.Second: "2m10s",
		3*time.Hour + 29*time.Second: "3h0m0s"} {
		if got := left(d); got != want {
			t.Errorf("%v left is shown as %q", d, got)
		}
	}
}
