package cli

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/cmd/internal/service"
	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// served is a configuration of a program that can be a service.
type served struct{ folder string }

func (s served) StateFolder() string    { return s.folder }
func (served) Files() map[string]string { return map[string]string{} }

// TestPrepare fills in what differs from a package's service.
func TestPrepare(t *testing.T) {
	for _, tt := range []struct{ config, folder, hasNot, has string }{
		{"/etc/agentd/agentd.yaml", "/var/lib/agentd", "--config", ""},
		{"/etc/agentd/agentd.yaml", "/var/lib/agentd/", "ReadWritePaths", ""},
		{"/srv/a.yaml", "/srv/state", "", "run --config /srv/a.yaml"},
		{"/srv/a.yaml", "/srv/state", "", "ReadWritePaths=/srv/state\n"},
	} {
		unit, err := (&installation{Loader: Loader{Path: tt.config}}).prepare(systemd.Agent(), tt.folder)
		if err != nil {
			t.Fatal(err)
		}
		text, err := unit.Text()
		if err != nil {
			t.Fatal(err)
		}
		if tt.hasNot != "" && strings.Contains(text, tt.hasNot) || !strings.Contains(text, tt.has) {
			t.Errorf("%+v:\n%s", tt, text)
		}
		if self, err := os.Executable(); err != nil || unit.Executable != self {
			t.Errorf("the service runs %s, not %s", unit.Executable, self)
		}
	}
	if _, err := new(installation).prepare(systemd.Agent(), "/srv"); err == nil {
		t.Error("a service without a configuration file is prepared")
	}
}

var update = flag.Bool("update", false, "write testdata")

// TestPrint holds the transcript of each system, where no configuration can be loaded and no manager is asked.
func TestPrint(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range service.Systems() {
		for name, args := range map[string][]string{
			"bad":  {"--config", "/etc/agentd/agentd.yaml"},
			"good": {"--config", "/srv/a.yaml", "--user", "fl"},
		} {
			root := Group("toy", "", ServiceCommand(systemd.Agent(), func(l *Loader) (Served, error) {
				if l.Path == "/srv/a.yaml" {
					return served{"/srv/state"}, nil
				}
				return nil, errors.New("bad configuration")
			}))
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&out)
			code := run(t.Context(), root, append([]string{"service", "install", "--print", "--system", system},
				args...))
			got := strings.ReplaceAll(out.String(), self, "/usr/local/bin/agentd")
			golden := filepath.Join("testdata", "service."+system+"."+name)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || code != 0 || string(want) != got {
				t.Errorf("%s: %v; exit %d; want\n%s\ngot\n%s\n(go test -update writes it)", golden, err, code, want,
					got)
			}
		}
	}
}

// TestInstallRefuses: a system is named only to be shown, and a bad configuration is installed nowhere.
func TestInstallRefuses(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--print --system sysv": {exitUsage, "--system is sysv; want launchd, openrc, systemd, windows"},
		"--system systemd":      {exitUsage, "--system goes with --print"},
		"--config /etc/none.yaml": {exitFailure, map[bool]string{true: "bad configuration",
			false: "only root"}[service.MayChange() == nil]},
	} {
		root := Group("toy", "", ServiceCommand(systemd.Agent(),
			func(*Loader) (Served, error) { return nil, errors.New("bad configuration") }))
		var errs bytes.Buffer
		root.SetErr(&errs)
		if code := run(t.Context(), root, append([]string{"service", "install"},
			strings.Fields(args)...)); code != want.code ||
			!strings.Contains(errs.String(), want.says) {
			t.Errorf("%s: exit %d: %s", args, code, &errs)
		}
	}
}
