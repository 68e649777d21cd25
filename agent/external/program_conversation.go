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

// programStopGrace is the time within which a program must answer a stop request, read a line, or exit.
const programStopGrace = 5 * time.Second

// maxStopWait is the maximum time that progress reports can delay the answer to a stop request. It must be shorter than
// the 10 minutes of the agent's watchdog.
const maxStopWait = 5 * time.Minute

// maxRows is the maximum number of rows that a program may report.
const maxRows = 1<<31 - 1

// frameConversation exchanges frames, which are lines of JSON, with a program. Only one goroutine may send requests at
// a time.
type frameConversation struct {
	programInput   io.WriteCloser
	killProgram    func() // kills all processes of the program; may be called again
	silenceTimeout time.Duration

	frames  chan programAnswer
	endErr  error         // error with which the program's output ended; set before frames is closed
	closing chan struct{} // closed when frames are no longer read
}

// startConversation starts a goroutine that reads the program's frames from out.
func startConversation(in io.WriteCloser, out io.ReadCloser, patience time.Duration, kill func()) *frameConversation {
	c := &frameConversation{programInput: in, killProgram: kill, silenceTimeout: patience,
		frames:  make(chan programAnswer),
		closing: make(chan struct{})}
	go c.readFrames(out)
	return c
}

// close ends the conversation and closes the program's input.
func (c *frameConversation) close() {
	close(c.closing)
	_ = c.programInput.Close() // Ignore the error: closing fails if the program has exited.
}

// closeInputAndWait closes the program's input and waits until the program closes its output.
func (c *frameConversation) closeInputAndWait() error {
	_ = c.programInput.Close() // Ignore the error: closing fails if the program has exited.
	late := time.NewTimer(programStopGrace)
	defer late.Stop()
	for {
		select {
		case _, more := <-c.frames:
			if !more {
				return nil
			}
		case <-late.C:
			return fmt.Errorf("the trainer is still running %v after its standard input was closed", programStopGrace)
		}
	}
}

var errEnded = errors.New("the trainer has exited")

// readFrames reads frames until the output ends or contains an invalid line.
func (c *frameConversation) readFrames(out io.ReadCloser) {
	defer out.Close()
	defer c.killProgram()
	defer close(c.frames)
	lines := bufio.NewReaderSize(out, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		var a programAnswer
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			c.endErr = fmt.Errorf("the trainer wrote a line of more than %d bytes: %q", maxLine, linePrefix(line))
		case err != nil && len(line) > 0:
			c.endErr = fmt.Errorf("the trainer exited before it completed the line %q", linePrefix(line))
		case err != nil:
			c.endErr = errEnded
		default:
			if err := json.Unmarshal(line, &a); err != nil {
				c.endErr = fmt.Errorf("the trainer wrote an invalid frame %q: %w", linePrefix(line), err)
			}
		}
		if c.endErr != nil {
			return
		}
		select {
		case c.frames <- a:
		case <-c.closing:
			c.endErr = errEnded
			return
		}
	}
}

// linePrefix returns the first 200 bytes of a line for error messages.
func linePrefix(line []byte) string { return textPrefix(string(line), 200) }

// textPrefix truncates a text to at most the given number of bytes.
func textPrefix(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// requestRefusedError is the error for a request that the program has refused.
type requestRefusedError struct{ why string }

func (e *requestRefusedError) Error() string { return "the trainer refused the request: " + e.why }

// writeFrame sends a frame to the program as one line of JSON.
func (c *frameConversation) writeFrame(frame any) error {
	line, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	if in, ok := c.programInput.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		// Ignore the error: the system's pipes support deadlines.
		_ = in.SetWriteDeadline(time.Now().Add(programStopGrace))
	}
	if _, err := c.programInput.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the trainer does not read its standard input: %w", err)
	}
	return nil
}

// requestAnswer sends a request and returns the answering frame named want. When ctx ends, it sends a stop request. Any
// error except *requestRefusedError kills the program.
func (c *frameConversation) requestAnswer(ctx context.Context, id uint64, request any, want string) (programAnswer,
	error) {
	a, err := c.sendAndAwaitAnswer(ctx, id, request, want)
	if err != nil && !errors.As(err, new(*requestRefusedError)) {
		c.killProgram()
	}
	return a, err
}

func (c *frameConversation) sendAndAwaitAnswer(ctx context.Context, id uint64, request any,
	want string) (programAnswer, error) {
	if err := c.writeFrame(request); err != nil {
		return programAnswer{}, err
	}
	patience := c.silenceTimeout
	silent := time.NewTimer(patience)
	defer silent.Stop()
	var last time.Time // time after which progress frames no longer extend the wait; set after a stop request
	for stopped := ctx.Done(); ; {
		select {
		case a, ok := <-c.frames:
			switch {
			case !ok:
				return programAnswer{}, c.endErr
			case a.Frame == want && a.ID == id:
				return a, nil
			case a.Frame == frameFailed && a.ID == id:
				return programAnswer{}, &requestRefusedError{textPrefix(a.FailureReason, 1000)}
			case a.Frame != frameProgress || a.ID > id:
				return programAnswer{}, fmt.Errorf("the trainer answered request %d with frame %q for request %d, "+
					"but frame %q was expected", id,
					textPrefix(a.Frame, 50), a.ID, want)
			case a.ID == id && (last.IsZero() || time.Now().Before(last)):
				silent.Reset(patience)
			}
		case <-silent.C:
			return programAnswer{}, fmt.Errorf("timeout: no output from the trainer for %v", patience)
		case <-stopped:
			stopped, patience, last = nil, programStopGrace, time.Now().Add(min(c.silenceTimeout, maxStopWait))
			silent.Reset(programStopGrace)
			if err := c.writeFrame(requestWithoutArguments{frameStop, id}); err != nil {
				return programAnswer{}, err
			}
		}
	}
}
