package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/api"
)

const (
	sessionCookie   = "fedmesh_session"
	sessionLifetime = 12 * time.Hour
)

// access identifies callers, and logs browsers in.
type access struct {
	cfg      *Config
	failures host.AttemptLimiter // wrong tokens
}

// errTooManyAttempts is the response to a source that has sent too many wrong tokens.
var errTooManyAttempts = &api.Error{Status: http.StatusTooManyRequests,
	Problem: "too many wrong tokens from this address: wait for two minutes"}

// requiresLogin reports whether callers must have a token or a certificate. Otherwise everybody on this machine may
// read.
func (a *access) requiresLogin() bool { return a.cfg.Tokens != "" }

// identify returns the sender of a request: the owner of its client certificate, its bearer token or its session
// cookie. The result has no role if the sender is unknown. Without console.control, no caller has the role operate.
func (a *access) identify(r *http.Request) (api.Caller, error) {
	c, err := a.authenticate(r)
	if c.Role == api.RoleOperate && !a.cfg.Control {
		c.Role, c.DeniedBecause = api.RoleView, "the console is read-only: run the command on the coordinator's "+
			"machine, or set console.control to true"
	}
	return c, err
}

func (a *access) authenticate(r *http.Request) (api.Caller, error) {
	if !a.requiresLogin() {
		// A page of another site could use a host name that resolves to this machine, and so read the responses.
		if !isLoopbackHost(r.Host) {
			return api.Caller{}, &api.Error{Status: http.StatusForbidden, Problem: "without console.tokens_file, the " +
				"console can be reached only as localhost or by a loopback address, but the request is for " + r.Host}
		}
		return api.Caller{Role: api.RoleView, Name: "user of this machine", IsAnonymous: true}, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		name := r.TLS.VerifiedChains[0][0].Subject.CommonName
		if c := a.cfg.Tokens.CallerWithCertificate(name); c.Role != "" {
			return c, nil
		}
	}
	if secret, ok := api.BearerToken(r); ok {
		return a.checkToken(r, secret)
	}
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		if hash, ok := a.openSession(cookie.Value); ok {
			return a.cfg.Tokens.CallerWithToken(hash), nil
		}
	}
	return api.Caller{}, nil
}

// checkToken returns the owner of a token. It counts wrong tokens, and returns errTooManyAttempts after too many.
func (a *access) checkToken(r *http.Request, secret string) (api.Caller, error) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	if now := a.cfg.Now(); a.failures.IsSourceBlocked(from.Addr(), now) {
		return api.Caller{}, errTooManyAttempts
	}
	c := a.cfg.Tokens.CallerWithToken(api.HashToken(secret))
	if c.Role == "" {
		a.failures.CountFailure(from.Addr(), a.cfg.Now())
		a.cfg.Log.Warn("wrong token for the console", "from", from.Addr())
	}
	return c, nil
}

// logIn exchanges a token for a session cookie.
func (a *access) logIn(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&in); err != nil {
		return api.BadRequest("invalid request body: %v", err)
	}
	if !a.requiresLogin() {
		return api.BadRequest("the console has no tokens: set console.tokens_file")
	}
	c, err := a.checkToken(r, in.Token)
	if err != nil {
		return err
	}
	if c.Role == "" {
		return &api.Error{Status: http.StatusUnauthorized,
			Problem: "wrong token: enter a token from the file console.tokens_file of the coordinator"}
	}
	a.setCookie(w, r, a.sealSession(api.HashToken(in.Token), a.cfg.Now().Add(sessionLifetime)), sessionLifetime)
	return nil
}

// setCookie sets the session cookie, or deletes it if lifetime is negative.
func (a *access) setCookie(w http.ResponseWriter, r *http.Request, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: value, Path: "/", MaxAge: int(lifetime.Seconds()),
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
}

// sealSession returns the value of a session cookie: the expiry as Unix time (8 bytes), the hash of the token (32) and
// an HMAC-SHA-256 of both (32), in base64. The server keeps no sessions, so a session survives a restart. A session
// ends when its token is removed from the file.
func (a *access) sealSession(token api.TokenHash, expires time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	b = append(b, token[:]...)
	return base64.RawURLEncoding.EncodeToString(append(b, a.sessionMAC(b)...))
}

// openSession returns the token hash of a session cookie. It reports false if the cookie is forged or has expired.
func (a *access) openSession(value string) (token api.TokenHash, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(b) != 8+len(token)+sha256.Size {
		return token, false
	}
	signed, mac := b[:8+len(token)], b[8+len(token):]
	expires := int64(binary.BigEndian.Uint64(signed)) //nolint:gosec // the MAC proves that we wrote it
	copy(token[:], signed[8:])
	return token, hmac.Equal(mac, a.sessionMAC(signed)) && a.cfg.Now().Unix() < expires
}

func (a *access) sessionMAC(b []byte) []byte {
	m := hmac.New(sha256.New, a.cfg.SessionKey)
	_, _ = m.Write(b) // a hash returns no error
	return m.Sum(nil)
}

// isLoopbackHost reports whether the host of a request, with or without a port, is localhost or a loopback address.
func isLoopbackHost(hostPort string) bool {
	name, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		name = hostPort
	}
	return name == "localhost" || net.ParseIP(trimBrackets(name)).IsLoopback()
}

func trimBrackets(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// asAPIError returns err as an api.Error, with status 500 if it is none.
func asAPIError(err error) *api.Error {
	if known := (*api.Error)(nil); errors.As(err, &known) {
		return known
	}
	return &api.Error{Status: http.StatusInternalServerError, Problem: err.Error()}
}
