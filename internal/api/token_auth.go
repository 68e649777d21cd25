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

// MinTokenLength is the minimum number of characters of a token. `openssl rand -hex 16` generates 32.
const MinTokenLength = 16

// TokenFile is the path of a file with one token per line: "ROLE TOKEN NAME". The optional name is for the log. The
// file is read for each request, so that a removed token becomes invalid immediately.
type TokenFile string

// Check returns an error if the file is invalid.
func (t TokenFile) Check() error {
	tokens, err := t.readTokens()
	if err == nil && len(tokens) == 0 {
		err = fmt.Errorf("%s contains no tokens", t)
	}
	return err
}

// hashedToken is a token's hash with its caller. Hashes have equal lengths and are compared in constant time.
type hashedToken struct {
	Caller
	hash [sha256.Size]byte
}

func (t TokenFile) readTokens() (all []hashedToken, err error) {
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
		words := append(strings.Fields(line), "")
		c := Caller{Role(words[0]), fmt.Sprintf("token of line %d", n)}
		if len(words) == 4 {
			c.Name = "token " + words[2]
		}
		if c.Role != RoleView && c.Role != RoleOperate || len(words) > 4 || len(words[1]) < MinTokenLength {
			return nil, fmt.Errorf("%s:%d: invalid line: want the role %s or %s, a token of at least %d characters "+
				"and an optional name, separated by spaces", t, n, RoleView, RoleOperate, MinTokenLength)
		}
		all = append(all, hashedToken{c, sha256.Sum256([]byte(words[1]))})
	}
	return all, lines.Err()
}

// AuthenticateCaller returns the owner of the request's token. Without a known token, or if the file cannot be read,
// the result has no role.
func (t TokenFile) AuthenticateCaller(r *http.Request) (c Caller) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	tokens, err := t.readTokens()
	if !ok || err != nil {
		return c
	}
	hash := sha256.Sum256([]byte(secret))
	for _, known := range tokens {
		if subtle.ConstantTimeCompare(hash[:], known.hash[:]) == 1 && c.Role != RoleOperate {
			c = known.Caller
		}
	}
	return c
}

// ServeTCP serves h at an address until ctx ends. It uses TLS unless cfg is nil.
func ServeTCP(ctx context.Context, addr string, cfg *tls.Config, h http.Handler, log *slog.Logger) error {
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
			log.Error("API server stopped", "err", err)
		}
	}()
	return nil
}
