package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// MinTokenLength is the minimum number of characters of a token. `openssl rand -hex 16` generates 32.
const MinTokenLength = 16

// certificateWord replaces the token in a line about the owner of a client certificate.
const certificateWord = "certificate"

// TokenFile is the path of a file with one caller per line: "ROLE TOKEN NAME" for the owner of a token, where the
// optional name is for the log, or "ROLE certificate NAME" for the owner of the client certificate with the common name
// NAME. The file is read for each request, so that a removed line is effective immediately.
type TokenFile string

// TokenHash is the SHA-256 hash of a token. Hashes have equal lengths and are compared in constant time.
type TokenHash [sha256.Size]byte

// HashToken returns the hash of a token.
func HashToken(secret string) TokenHash { return sha256.Sum256([]byte(secret)) }

// Check returns an error if the file is invalid.
func (t TokenFile) Check() error {
	tokens, err := t.readTokens()
	if err == nil && len(tokens) == 0 {
		err = fmt.Errorf("%s contains no tokens", t)
	}
	return err
}

// tokenLine is a line of a token file.
type tokenLine struct {
	Caller
	hash        TokenHash // hash of the token; zero in a line about a certificate
	certificate string    // common name of the certificate; empty in a line about a token
}

func (t TokenFile) readTokens() (all []tokenLine, err error) {
	text, err := os.ReadFile(string(t))
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		line := tokenLine{Caller: Caller{Role: Role(words[0]), Name: fmt.Sprintf("token of line %d", n)}}
		isRole := line.Role == RoleView || line.Role == RoleOperate
		switch {
		case isRole && len(words) == 3 && words[1] == certificateWord:
			line.certificate, line.Name = words[2], "certificate "+words[2]
		case isRole && (len(words) == 2 || len(words) == 3) && len(words[1]) >= MinTokenLength:
			if line.hash = HashToken(words[1]); len(words) == 3 {
				line.Name = "token " + words[2]
			}
		default:
			return nil, fmt.Errorf("%s:%d: invalid line: want the role %s or %s, a token of at least %d characters "+
				"and an optional name, separated by spaces, or the role, the word %s and the common name of a client "+
				"certificate", t, n, RoleView, RoleOperate, MinTokenLength, certificateWord)
		}
		all = append(all, line)
	}
	return all, lines.Err()
}

// CallerWithToken returns the owner of a token. The result has no role if the token is unknown or the file cannot be
// read.
func (t TokenFile) CallerWithToken(hash TokenHash) Caller {
	return t.findCaller(func(l *tokenLine) bool {
		return subtle.ConstantTimeCompare(hash[:], l.hash[:]) == 1 && l.certificate == ""
	})
}

// CallerWithCertificate returns the owner of a client certificate with the given common name, which TLS has verified.
// The result has no role if the file does not contain the name or cannot be read.
func (t TokenFile) CallerWithCertificate(commonName string) Caller {
	return t.findCaller(func(l *tokenLine) bool { return l.certificate == commonName && commonName != "" })
}

// findCaller returns the caller of the matching lines with the most permissions.
func (t TokenFile) findCaller(matches func(*tokenLine) bool) (c Caller) {
	all, _ := t.readTokens() // a file with an error contains no callers
	for i := range all {
		if matches(&all[i]) && c.Role != RoleOperate {
			c = all[i].Caller
		}
	}
	return c
}

// BearerToken returns the token in the header Authorization of a request.
func BearerToken(r *http.Request) (string, bool) {
	return strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
}
