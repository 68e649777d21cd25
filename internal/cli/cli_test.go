package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/spec"
)

// toy is the small configuration of the program under test.
type toy struct {
	Name     string        `yaml:"name"`
	Password config.Secret `yaml:"password"`
	Columns  []string      `yaml:"columns"`
}

// Validate implements the validation method that config.Load calls.
func (s *toy) Validate() error {
	if s.Name == "" {
		return &spec.FieldError{Key: "name", Problem: "is empty"}
	}
	return nil
}

// try runs a command line of a small test program.
func try(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	load := func(l *ConfigLoader) (any, error) {
		s := &toy{}
		return s, config.Load(s, config.Source{Path: l.Path, Overrides: l.Overrides})
	}
	root := &cobra.Command{Use: "toy", Version: "v1.2.3"}
	root.AddCommand(KeyCommand(), ConfigCommand("toy", load, nil), &cobra.Command{
		Use: "fail", Args: ArgsCheckWithUsageError(cobra.NoArgs), RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return errors.New("it does not work")
		},
	})
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	code = runRootCommand(ctx, root, args)
	return code, out.String(), errs.String()
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for path, text := range map[string]string{good: "name: a\npassword: hush\n", bad: "name: a\nnmae: b\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"--version", 0, "toy version v1.2.3\n", ""},
		{"fail", 1, "", "toy: it does not work\n"},
		{"fail now", 2, "", "toy: unknown command \"now\" for \"toy fail\"\nsee 'toy fail --help'\n"},
		{"faill", 2, "", "toy: unknown command \"faill\" for \"toy\"\n\nDid you mean this?\n\tfail\n\nsee 'toy " +
			"--help'\n"},
		{"key mew", 2, "", "toy: unknown command \"mew\" for \"toy key\"\nsee 'toy key --help'\n"},
		{"key new", 2, "", "toy: accepts 1 arg(s), received 0\nsee 'toy key new --help'\n"},
		{"fail --fast", 2, "", "toy: unknown flag: --fast\nsee 'toy fail --help'\n"},
		{"config check --set name", 2, "",
			"toy: invalid argument \"name\" for \"--set\" flag: want KEY=VALUE\nsee 'toy config check --help'\n"},
		{"config check -c " + good, 0, good + " is valid\n", ""},
		{"config check -c " + bad, 78, "",
			"toy: " + bad + ":2:1: unknown key \"nmae\"; did you mean \"name\"?\n  2 | nmae: b\n    | ^\n"},
		{"config check -c " + good + " --set name=", 78, "", "toy: command line: name: is empty\n"},
		{"config check -c " + dir + "/none", 78, "",
			"toy: " + dir + "/none: cannot read the file: no such file or directory\n"},
		{"config show -c " + good + " --set columns=a,b --set name=x=y", 0,
			"name: \"x=y\"\npassword: \"[redacted]\"\ncolumns: [a, b]\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := try(t, t.Context(), strings.Fields(tt.args)...)
			if code != tt.code || stdout != tt.stdout || stderr != tt.stderr {
				t.Errorf("exit %d\n%s%s\nwant exit %d\n%s%s", code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
		})
	}
}

// TestGroupHelps checks that a command that only has subcommands prints its help and no error.
func TestGroupHelps(t *testing.T) {
	for _, args := range [][]string{nil, {"key"}, {"config"}} {
		code, stdout, stderr := try(t, t.Context(), args...)
		if code != 0 || !strings.Contains(stdout, "Available Commands:") || stderr != "" {
			t.Errorf("%v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, stderr := try(t, ctx, "fail"); code != 130 || stderr != "toy: context canceled\n" {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// TestConfigVariable checks that the configuration file from the environment is used unless the command line names one.
func TestConfigVariable(t *testing.T) {
	t.Setenv("TOY_CONFIG", "/none/of-environment")
	if code, _, stderr := try(t, t.Context(), "config", "check"); code != 78 ||
		!strings.Contains(stderr, "/none/of-environment") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, stderr := try(t, t.Context(), "config", "check", "--config", "/none/of-flag"); code != 78 ||
		!strings.Contains(stderr, "/none/of-flag") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	t.Setenv("TOY_CONFIG", "")
	if code, _, stderr := try(t, t.Context(), "config", "check"); code != 78 ||
		!strings.Contains(stderr, "/etc/toy/toy.yaml") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.key")
	code, made, stderr := try(t, t.Context(), "key", "new", path)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	if _, err := keys.ParsePublic(made); err != nil {
		t.Errorf("key new printed %q: %v", made, err)
	}
	if code, shown, _ := try(t, t.Context(), "key", "show", path); code != 0 || shown != made {
		t.Errorf("key show: exit %d, %q; want what key new printed, %q", code, shown, made)
	}
	if code, _, stderr := try(t, t.Context(), "key", "new", path); code != 1 ||
		!strings.Contains(stderr, path+" already exists") {
		t.Errorf("a second key new: exit %d, %s", code, stderr)
	}
}

// TestStatusCode checks that a command's own exit code is returned and that no other message is printed.
func TestStatusCode(t *testing.T) {
	root := &cobra.Command{Use: "toy", SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error { return silentExitError{3} }}
	var errs bytes.Buffer
	root.SetErr(&errs)
	if code := runRootCommand(t.Context(), root, nil); code != 3 || errs.Len() > 0 {
		t.Errorf("exit %d: %s", code, &errs)
	}
}
