package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const redacted = "[redacted]"

// Secret is text that must not be shown. It prints as "[redacted]" with every fmt verb, in slog, JSON and YAML; only
// the conversion string(s) gives it away. An empty one prints as nothing. Keep it in exported fields: fmt cannot
// call methods on the others.
type Secret string

// String returns "[redacted]", or "" for the empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format writes String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue is String for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReadSecret returns the secret called name from one of its three places: value, the key itself; file, the content
// of the file its *_file key names; or else the file called name in credentialsDir ($CREDENTIALS_DIRECTORY, ""
// outside systemd). White space around the content of a file is cut off. With none of them the secret is empty.
//
// value and file together, and an unreadable, empty or oversized file, are errors; a blank credential is none. warning
// is not empty if other users may read file; the credentials directory is systemd's to protect.
func ReadSecret(value Secret, file, name, credentialsDir string) (secret Secret, warning string, err error) {
	switch {
	case value != "" && file != "":
		return "", "", fmt.Errorf("%s and %s_file are both set; keep one", name, name)
	case value != "":
		return value, "", nil
	case file != "":
		secret, err = readSecretFile(name, file)
		if err != nil {
			return "", "", err
		}
		return secret, permissionWarning(file), nil
	case credentialsDir != "":
		secret, err = readSecretFile(name, filepath.Join(credentialsDir, name))
		// our units hand over a line break in place of a missing file
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errEmptySecret) {
			return "", "", nil
		}
		return secret, "", err
	default:
		return "", "", nil
	}
}

var errEmptySecret = errors.New("is empty")

func readSecretFile(name, file string) (Secret, error) {
	data, err := readSizeLimitedFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err) // err names the file
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", fmt.Errorf("%s: %s %w", name, file, errEmptySecret)
	}
	return Secret(text), nil
}

// permissionWarning returns a warning about the file's permissions, which mean nothing on Windows.
func permissionWarning(file string) string {
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS == "windows" || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s is open to other users (mode %04o); run chmod 600 on it", file, info.Mode().Perm())
}
