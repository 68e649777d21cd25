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

// SocketPath returns the path of the socket of a daemon with this state folder.
func SocketPath(dir string) string { return filepath.Join(dir, "api.sock") }

// ServeSocket serves h on a socket in the state folder until ctx ends. The folder is private, so only its owner can
// connect, with all permissions. The daemon works without the socket, so an error is only logged.
func ServeSocket(ctx context.Context, dir string, h http.Handler, log *slog.Logger) {
	path := SocketPath(dir)
	// A killed process leaves the socket behind. The folder is locked, so no other process uses the socket.
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		var l net.Listener
		if l, err = net.Listen("unix", path); err == nil {
			server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10,
				BaseContext: func(net.Listener) context.Context { return ctx },
				ConnContext: func(ctx context.Context, c net.Conn) context.Context {
					return context.WithValue(ctx, peerNameContextKey{}, peerUserName(c))
				}}
			context.AfterFunc(ctx, func() { _ = server.Close() }) // Close also removes the socket file
			go func() { _ = server.Serve(l) }()                   // Serve returns when the listener is closed
			return
		}
	}
	log.Warn("cannot open the command socket; commands on this machine cannot connect", "err", err)
}

// peerNameContextKey is the context key of the connected user's name.
type peerNameContextKey struct{}

// SocketCaller returns the caller of a request that arrived over the Unix socket. Such a caller always has RoleOperate.
func SocketCaller(r *http.Request) Caller {
	name, _ := r.Context().Value(peerNameContextKey{}).(string)
	return Caller{Role: RoleOperate, Name: name}
}
