package simulate

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/lab/sim"
)

// progress shows the progress of a simulation: a bar on a terminal, a few lines of text elsewhere.
type progress struct {
	w     io.Writer
	width func() int // width of the terminal; nil if w is not a terminal
	now   func() time.Time
	every time.Duration

	done, total atomic.Int64
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, now: time.Now, every: 5 * time.Second}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.every = 100 * time.Millisecond
		p.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width == 0 { // some terminals report an error or a width of 0
				return 80
			}
			return width
		}
	}
	return p
}

// follow calls work and shows its progress until work returns.
func (p *progress) follow(work func(sim.Observer) (*sim.Result, error)) (*sim.Result, error) {
	began, ended, gone := p.now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				p.show(p.now().Sub(began))
			}
		}
	}()
	r, err := work(func(at sim.Progress) {
		p.total.Store(at.Total)
		p.done.Add(1) // count the calls, because the values of at.Done may arrive out of order
	})
	close(ended)
	<-gone
	if p.width != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	return r, err
}

// show draws the bar or prints a line.
func (p *progress) show(elapsed time.Duration) {
	done, total := p.done.Load(), p.total.Load()
	text := "preparing …"
	share := 0.0
	if total > 0 {
		share = float64(done) / float64(total)
		text = fmt.Sprintf("%3.0f %%  %d of %d rounds", 100*share, done, total)
		if share > 0 {
			text += "  " + left(time.Duration(float64(elapsed)/share*(1-share))) + " left"
		}
	}
	if p.width == nil {
		fmt.Fprintln(p.w, strings.TrimSpace(text))
		return
	}
	width := p.width()
	room := max(0, min(30, width-len([]rune(text))-2))
	full := int(share * float64(room))
	line := []rune(strings.Repeat("█", full) + strings.Repeat("░", room-full) + " " + text)
	fmt.Fprintf(p.w, "\r%s\x1b[K", string(line[:min(len(line), max(width-1, 0))]))
}

// left returns the remaining time, rounded for display.
func left(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return d.Round(10 * time.Second).String()
	}
	return d.Round(time.Minute).String()
}
