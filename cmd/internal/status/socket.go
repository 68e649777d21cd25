package status

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long either end of the socket waits for the other.
const patience = 5 * time.Second

// socketIn is where a daemon with this state folder listens.
func socketIn(dir string) string { return filepath.Join(dir, "status.sock") }

// Picture is the state that a daemon shows. It is also encoded as JSON.
type Picture interface {
	// Draw returns the picture as text, no line wider than width.
	Draw(width int) string
}

// asJSON asks for JSON. A number instead asks for text of that width.
const asJSON = "json"

// Serve answers requests on a socket in the state folder until ctx ends. A request is a line: asJSON, or a width. The
// daemon draws the text, so that a command of another version can show it. Only the owner of the folder, which is
// private, can connect. A daemon works without the socket, so an error is only logged.
func Serve(ctx context.Context, dir string, picture func() Picture, log *slog.Logger) {
	path := socketIn(dir)
	err := os.Remove(path) // left by a process that was killed: the folder is locked, so no other process uses it
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		var l net.Listener
		if l, err = net.Listen("unix", path); err == nil {
			context.AfterFunc(ctx, func() { _ = l.Close() }) // this removes the file
			go accept(l, picture)
			return
		}
	}
	log.Warn("the status command will not find this program", "err", err)
}

func accept(l net.Listener, picture func() Picture) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, say
			<-time.After(time.Second)
			continue
		}
		go answer(conn, picture())
	}
}

func answer(conn net.Conn, p Picture) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReaderSize(io.LimitReader(conn, 64), 64).ReadString('\n')
	if err != nil {
		return
	}
	line = strings.TrimSpace(line)
	if line == asJSON {
		_ = json.NewEncoder(conn).Encode(p) // the client may have gone
		return
	}
	if width, err := strconv.Atoi(line); err == nil {
		_, _ = io.WriteString(conn, p.Draw(width))
	}
}

// fetch sends a request, asJSON or a width, to the daemon with this state folder, and waits up to patience for the
// answer.
func fetch(program, dir, what string, patience time.Duration) ([]byte, error) {
	path := socketIn(dir)
	conn, err := net.DialTimeout("unix", path, patience)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no %s runs with the state folder %s", program, dir)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("this user may not read the state folder %s: run the command as root, or as the user "+
			"of %s", dir, program)
	}
	var text []byte
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err = io.WriteString(conn, what+"\n"); err == nil {
			text, err = io.ReadAll(conn)
		}
	}
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout(): // also of the dial: a stopped process does not accept
		return nil, fmt.Errorf("%s runs with the state folder %s and does not answer within %s: it is stopped, "+
			"hangs, or the machine is overloaded; "+
			"look at its log, and restart it with: %[1]s service restart", program, dir, patience)
	case err == nil && len(text) == 0:
		err = fmt.Errorf("%s closed the socket %s without an answer", program, path)
	}
	return text, err
}
