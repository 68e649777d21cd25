package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/goccy/go-yaml"
)

func TestSecretIsNotShown(t *testing.T) {
	s := config.Secret("hunter2")
	holder := struct {
		S config.Secret
		P *config.Secret
		L []config.Secret
	}{s, &s, []config.Secret{s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+"\n", s, holder)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("m", "secret", s, "holder", holder)
	}
	if err := json.NewEncoder(&out).Encode(holder); err != nil {
		t.Fatal(err)
	}
	if err := yaml.NewEncoder(&out).Encode(holder); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
		t.Errorf("the secret is in\n%s", text)
	}
	if got := fmt.Sprintf("%v|%#v|%s", s, s, config.Secret("")); got != "[redacted]|[redacted]|" {
		t.Errorf("got %s", got)
	}
	if string(s) != "hunter2" {
		t.Errorf("the conversion gives %q", string(s))
	}
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	closed, open := write("closed", " from file \n", 0o600), write("open", "x", 0o640)
	empty, large := write("empty", "\n", 0o600), write("large", strings.Repeat("x", 1<<20+1), 0o600)
	write("password", "from credential\n", 0o440)
	tests := []struct {
		name            string
		value           config.Secret
		file, dir       string
		want            config.Secret
		warning, failed string
	}{
		{name: "nothing"},
		{name: "value", value: "v", dir: dir, want: "v"},
		{name: "file", file: closed, dir: dir, want: "from file"},
		{name: "credential", dir: dir, want: "from credential"},
		{name: "no credential", dir: t.TempDir()},
		{name: "open file", file: open, want: "x", warning: open +
			" is accessible to other users (mode 0640); run chmod 600 on it"},
		{name: "both", value: "v", file: closed, failed: "password and password_file are both set: remove one of them"},
		{name: "empty", file: empty, failed: "password: " + empty + " is empty"},
		{name: "large", file: large, failed: "password: read " + large + ": the file is larger than 1 MiB"},
		{name: "missing", file: dir + "/none", failed: "password: open " + dir + "/none: no such file or directory"},
	}
	for _, tt := range tests {
		got, warning, err := config.ReadSecret(tt.value, tt.file, "password", tt.dir)
		if runtime.GOOS == "windows" {
			tt.warning = ""
		}
		failed := ""
		if err != nil {
			failed = err.Error()
		}
		if got != tt.want || warning != tt.warning || failed != tt.failed {
			t.Errorf("%s: got %q, %q, %q; want %q, %q, %q", tt.name, string(got), warning, failed, string(tt.want),
				tt.warning, tt.failed)
		}
	}
}
