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

// MinTokenLength is the fewest characters of a token: `openssl rand -hex 16` makes 32.
const MinTokenLength = 16

// TokenFile is the path of a file with a line "ROLE TOKEN NAME" for each token; the name is for the log, and may be
// absent. The file is read for each request, so that a token that is taken out of it is worth nothing at once.
type TokenFile string

// Check returns what is wrong with the file.
func (t TokenFile) Check() error {
	tokens, err := t.readTokens()
	if err == nil && len(tokens) == 0 {
		err = fmt.Errorf("%s has no token", t)
	}
	return err
}

// hashedToken has the hash of a token: hashes of one length are compared in constant time.
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
			return nil, fmt.Errorf("%s:%d: want %s or %s, a token of at least %d characters, and perhaps a name, with "+
				"blanks between", t, n, RoleView, RoleOperate, MinTokenLength)
		}
		all = append(all, hashedToken{c, sha256.Sum256([]byte(words[1]))})
	}
	return all, lines.Err()
}

// AuthenticateCaller returns whose token a request has; without a known one it may do nothing. A file that cannot be
// readTokens allows nothing.
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

// ServeTCP answers at an address until ctx ends, over TLS unless cfg is nil.
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
			log.Error("the API is no longer served", "err", err)
		}
	}()
	return nil
}
