package external

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// programStopGrace is how long a program may take to answer stop, to read a line, and to end.
const programStopGrace = 5 * time.Second

// maxStopWait is how long after stop progress helps at most: after 10 minutes the agent's watchdog has agentd ended.
const maxStopWait = 5 * time.Minute

// maxRows bounds the rows that a program may claim.
const maxRows = 1<<31 - 1

// conversation is the frames that go to and fro with a program. One goroutine asks at a time.
type conversation struct {
	in       io.WriteCloser
	kill     func() // the program, with all its processes; may be called again
	patience time.Duration

	frames  chan answer
	broken  error         // why no more frames come; set when frames is closed
	closing chan struct{} // closed when nobody listens any more
}

// converse begins to read a program's frames from out.
func converse(in io.WriteCloser, out io.ReadCloser, patience time.Duration, kill func()) *conversation {
	c := &conversation{in: in, kill: kill, patience: patience, frames: make(chan answer), closing: make(chan struct{})}
	go c.read(out)
	return c
}

// close ends the conversation; the program is told so by the end of its input.
func (c *conversation) close() {
	close(c.closing)
	_ = c.in.Close() // a program that has ended needs no telling
}

// closeInputAndWait ends the program's input, and waits for the end of its output.
func (c *conversation) closeInputAndWait() error {
	_ = c.in.Close() // a program that has ended needs no telling
	late := time.NewTimer(programStopGrace)
	defer late.Stop()
	for {
		select {
		case _, more := <-c.frames:
			if !more {
				return nil
			}
		case <-late.C:
			return fmt.Errorf("the program runs on %v after its input has ended", programStopGrace)
		}
	}
}

// errEnded is that of a program whose output has ended.
var errEnded = errors.New("the program has ended")

// read reads frames until the output ends, or has something else.
func (c *conversation) read(out io.ReadCloser) {
	defer out.Close()
	defer c.kill()
	defer close(c.frames)
	lines := bufio.NewReaderSize(out, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		var a answer
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			c.broken = fmt.Errorf("a line of the program has more than %d bytes: %q", maxLine, linePrefix(line))
		case err != nil && len(line) > 0:
			c.broken = fmt.Errorf("the program has ended inside the line %q", linePrefix(line))
		case err != nil:
			c.broken = errEnded
		default:
			if err := json.Unmarshal(line, &a); err != nil {
				c.broken = fmt.Errorf("the program wrote %q, which is no frame: %w", linePrefix(line), err)
			}
		}
		if c.broken != nil {
			return
		}
		select {
		case c.frames <- a:
		case <-c.closing:
			c.broken = errEnded
			return
		}
	}
}

// linePrefix is as much of a line as people need to know it by.
func linePrefix(line []byte) string { return textPrefix(string(line), 200) }

// textPrefix returns the first bytes of a text.
func textPrefix(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// requestRefusedError is the program's own refusal of a request.
type requestRefusedError struct{ why string }

func (e *requestRefusedError) Error() string { return "the program says: " + e.why }

// write sends a frame.
func (c *conversation) write(frame any) error {
	line, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	if in, ok := c.in.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		_ = in.SetWriteDeadline(time.Now().Add(programStopGrace)) // a pipe of the system has one
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the program does not read what it is asked: %w", err)
	}
	return nil
}

// ask sends a request, and returns its answer, which has the name want. When ctx ends the program is told to stop. An
// error that is no *failedError has ended the program.
func (c *conversation) ask(ctx context.Context, id uint64, request any, want string) (answer, error) {
	a, err := c.await(ctx, id, request, want)
	if err != nil && !errors.As(err, new(*requestRefusedError)) {
		c.kill()
	}
	return a, err
}

func (c *conversation) await(ctx context.Context, id uint64, request any, want string) (answer, error) {
	if err := c.write(request); err != nil {
		return answer{}, err
	}
	patience := c.patience
	silent := time.NewTimer(patience)
	defer silent.Stop()
	var last time.Time // after stop: when progress helps no more
	for stopped := ctx.Done(); ; {
		select {
		case a, ok := <-c.frames:
			switch {
			case !ok:
				return answer{}, c.broken
			case a.Frame == want && a.ID == id:
				return a, nil
			case a.Frame == frameFailed && a.ID == id:
				return answer{}, &requestRefusedError{textPrefix(a.Why, 1000)}
			case a.Frame != frameProgress || a.ID > id:
				return answer{}, fmt.Errorf("the program answers request %d with %q of %d; want %q", id,
					textPrefix(a.Frame, 50), a.ID, want)
			case a.ID == id && (last.IsZero() || time.Now().Before(last)):
				silent.Reset(patience)
			}
		case <-silent.C:
			return answer{}, fmt.Errorf("the program has said nothing for %v", patience)
		case <-stopped:
			stopped, patience, last = nil, programStopGrace, time.Now().Add(min(c.patience, maxStopWait))
			silent.Reset(programStopGrace)
			if err := c.write(shortRequest{frameStop, id}); err != nil {
				return answer{}, err
			}
		}
	}
}
