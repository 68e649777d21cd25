package config

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

var (
	urlCredentialsPattern = regexp.MustCompile(`(://)[^/\s@]+@`) // user and password in a URL
	keyPattern            = regexp.MustCompile(`([\w.-]+)["']?\s*:(\s|$)`)
	secretPattern         = regexp.MustCompile(`(?i)pass|secret|token|credential|private`)
)

// redactedExcerpt returns a line of the file with secrets redacted, because errors are logged. Passwords in URLs are
// also redacted. The function searches the text, because no syntax tree is available after a syntax error. An unknown
// key whose name resembles the key of a secret is treated as a secret.
func (d *configText) redactedExcerpt(line int) string {
	// The replacement has the same length as the original, so the caret still points to the correct column.
	text := urlCredentialsPattern.ReplaceAllStringFunc(d.lines[line-1], func(s string) string {
		return "://" + strings.Repeat("*", utf8.RuneCountInString(s)-4) + "@"
	})
	for i := line - 1; i >= 0; i-- {
		keys := keyPattern.FindAllStringSubmatchIndex(d.lines[i], -1)
		for _, k := range keys {
			if !d.isSecretKey(d.lines[i][k[2]:k[3]]) {
				continue
			}
			if i == line-1 {
				return text[:k[1]] + redacted
			}
			return redacted // the line continues a secret value that started in an earlier line
		}
		if keys != nil {
			break
		}
	}
	return text
}

// isSecretKey reports whether the key is a secret or a likely misspelling of one.
func (d *configText) isSecretKey(name string) bool {
	if secret, known := d.isSecretByKey[name]; known {
		return secret
	}
	for known, secret := range d.isSecretByKey {
		if secret && closestName(name, []string{known}) != "" {
			return true
		}
	}
	return secretPattern.MatchString(name)
}
