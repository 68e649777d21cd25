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

// Secret is text that must not be shown. It prints as "[redacted]" with every verb of package fmt, in slog, JSON and
// YAML. Only the conversion string(s) reveals the text. An empty secret prints as "". Secrets must be in exported
// fields, because fmt cannot call methods of unexported fields.
type Secret string

// String returns "[redacted]", or "" for the empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format writes String() for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue implements slog.LogValuer and returns the redacted text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler, so JSON and YAML contain the redacted text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReadSecret returns a secret from the first of three places that contains the secret. The first place is value, the
// value of the secret's key. The second place is file, whose path is the value of the *_file key. The third place is
// the file called name in credentialsDir. credentialsDir is $CREDENTIALS_DIRECTORY, which systemd sets, or "". White
// space around a file's content is removed. If no place contains the secret, ReadSecret returns an empty secret.
//
// It returns an error if both value and file are set, or if a file is unreadable, empty or too large. A blank file in
// credentialsDir is treated as missing. warning is set if other users may read file. It is never set for
// credentialsDir, because systemd protects that folder.
func ReadSecret(value Secret, file, name, credentialsDir string) (secret Secret, warning string, err error) {
	switch {
	case value != "" && file != "":
		return "", "", fmt.Errorf("%s and %s_file are both set: remove one of them", name, name)
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
		// The systemd units pass a file with only a line break if the credential does not exist.
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
		return "", fmt.Errorf("%s: %w", name, err) // err already contains the file name
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", fmt.Errorf("%s: %s %w", name, file, errEmptySecret)
	}
	return Secret(text), nil
}

// permissionWarning returns a warning if the file's permissions are too wide for a secret. It returns "" on Windows,
// where permissions are not checked.
func permissionWarning(file string) string {
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS == "windows" || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s is accessible to other users (mode %04o); run chmod 600 on it", file, info.Mode().Perm())
}
