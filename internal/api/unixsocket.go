package api

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// SocketPath is where a daemon with this state folder listens.
func SocketPath(dir string) string { return filepath.Join(dir, "api.sock") }

// ServeSocket answers on a socket in the state folder until ctx ends. Only the owner of the folder, which is private,
// can connect, and may do all. A daemon works without the socket, so an error is only logged.
func ServeSocket(ctx context.Context, dir string, h http.Handler, log *slog.Logger) {
	path := SocketPath(dir)
	err := os.Remove(path) // left by a process that was killed: the folder is locked, so no other process uses it
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		var l net.Listener
		if l, err = net.Listen("unix", path); err == nil {
			server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10,
				BaseContext: func(net.Listener) context.Context { return ctx },
				ConnContext: func(ctx context.Context, c net.Conn) context.Context {
					return context.WithValue(ctx, peerNameContextKey{}, peerUserName(c))
				}}
			context.AfterFunc(ctx, func() { _ = server.Close() }) // this removes the file
			go func() { _ = server.Serve(l) }()                   // until it is closed
			return
		}
	}
	log.Warn("commands on this machine cannot reach this program: its socket cannot be opened", "err", err)
}

// peerNameContextKey is the key of the name of who has connected, in a request's context.
type peerNameContextKey struct{}

// SocketCaller is the caller of a request that came over the socket, who may operate.
func SocketCaller(r *http.Request) Caller {
	name, _ := r.Context().Value(peerNameContextKey{}).(string)
	return Caller{RoleOperate, name}
}
