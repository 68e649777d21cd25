package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Client calls the HTTP API of a running daemon through the Unix socket in the daemon's state folder.
type Client struct {
	Program, Dir string
	// Timeout is the time limit for the daemon's reply.
	Timeout time.Duration
}

// ErrNotRunning reports that no daemon listens on the socket.
var ErrNotRunning = errors.New("not running")

// Call sends in as JSON and decodes the reply into out. Either may be nil.
func (c Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	answer, err := c.CallRaw(ctx, method, path, "application/json", body)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// CallRaw sends a body and returns the complete reply, without a size limit.
func (c Client) CallRaw(ctx context.Context, method, path, accept string, body []byte) ([]byte, error) {
	r, err := c.CallStream(ctx, method, path, accept, body)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	answer, err := io.ReadAll(r)
	return answer, c.explainError(err)
}

// CallStream is like CallRaw but returns the reply as a stream.
func (c Client) CallStream(ctx context.Context, method, path, accept string, body []byte) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.Program+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: c.Timeout,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: c.Timeout}
			return d.DialContext(ctx, "unix", SocketPath(c.Dir))
		}}}
	answer, err := client.Do(r)
	if err != nil {
		return nil, c.explainError(err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	refused := &Error{Status: answer.StatusCode}
	if text, err := io.ReadAll(io.LimitReader(answer.Body, maxBody)); err != nil ||
		json.Unmarshal(text, refused) != nil || refused.Problem == "" {
		refused.Problem = fmt.Sprintf("%s replied with status %s to the request %s %s", c.Program, answer.Status,
			method, path)
	}
	return nil, refused
}

func (c Client) explainError(err error) error {
	var late net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no running %s uses the state folder %s%w", c.Program, c.Dir, notRunningError{})
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the current user may not read the state folder %s: run the command as root or as the user "+
			"of %s",
			c.Dir, c.Program)
	case errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("%s uses the state folder %s but did not reply within %s: the process is stopped or "+
			"blocked, or the machine is overloaded; check its log, and restart it with: %[1]s service restart",
			c.Program, c.Dir,
			c.Timeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%s closed the socket %s without a reply", c.Program, SocketPath(c.Dir))
	}
	return err
}

// notRunningError matches ErrNotRunning with errors.Is but has an empty text, because the message that wraps it already
// explains the problem.
type notRunningError struct{}

func (notRunningError) Error() string        { return "" }
func (notRunningError) Is(target error) bool { return target == ErrNotRunning }
