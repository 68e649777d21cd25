package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// LeastToken is the fewest characters of a token: `openssl rand -hex 16` makes 32.
const LeastToken = 16

// Tokens is the path of a file with a line "ROLE TOKEN" for each token. It is read for each request, so that a token
// that is taken out of it is worth nothing at once.
type Tokens string

// Check returns what is wrong with the file.
func (t Tokens) Check() error {
	tokens, err := t.read()
	if err == nil && len(tokens) == 0 {
		err = fmt.Errorf("%s has no token", t)
	}
	return err
}

// token is a token's role and hash: hashes of one length are compared in constant time.
type token struct {
	role Role
	hash [sha256.Size]byte
}

func (t Tokens) read() (all []token, err error) {
	text, err := os.ReadFile(string(t))
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		role, secret, _ := strings.Cut(line, " ")
		secret = strings.TrimSpace(secret)
		if r := Role(role); r != View && r != Operate || len(secret) < LeastToken {
			return nil, fmt.Errorf("%s:%d: want %s or %s, a blank, and a token of at least %d characters", t, n, View,
				Operate, LeastToken)
		}
		all = append(all, token{Role(role), sha256.Sum256([]byte(secret))})
	}
	return all, lines.Err()
}

// Role returns what the token of a request allows; "" without a known one. A file that cannot be read allows nothing.
func (t Tokens) Role(r *http.Request) (role Role) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	tokens, err := t.read()
	if !ok || err != nil {
		return ""
	}
	hash := sha256.Sum256([]byte(secret))
	for _, known := range tokens {
		if subtle.ConstantTimeCompare(hash[:], known.hash[:]) == 1 && role != Operate {
			role = known.role
		}
	}
	return role
}

// Listen answers at an address until ctx ends, over TLS unless cfg is nil.
func Listen(ctx context.Context, addr string, cfg *tls.Config, h http.Handler, log *slog.Logger) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("api.listen: %w", err)
	}
	scheme := "http"
	if cfg != nil {
		l, scheme = tls.NewListener(l, cfg), "https"
	}
	log.Info("serving the API", "url", fmt.Sprintf("%s://%s/v1/status", scheme, l.Addr()))
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the API is no longer served", "err", err)
		}
	}()
	return nil
}
