package cli

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// served is the configuration of a test program that can run as a service.
type served struct{ folder string }

func (s served) StateFolder() string         { return s.folder }
func (served) FilesByKey() map[string]string { return map[string]string{} }

// TestPrepare checks the settings that differ from the service that a distribution package installs.
func TestPrepare(t *testing.T) {
	for _, tt := range []struct{ config, folder, hasNot, has string }{
		{"/etc/agentd/agentd.yaml", "/var/lib/agentd", "--config", ""},
		{"/etc/agentd/agentd.yaml", "/var/lib/agentd/", "ReadWritePaths", ""},
		{"/srv/a.yaml", "/srv/state", "", "run --config /srv/a.yaml"},
		{"/srv/a.yaml", "/srv/state", "", "ReadWritePaths=/srv/state\n"},
	} {
		unit, err := prepareUnit(systemd.Agent(), &ConfigLoader{Path: tt.config}, served{tt.folder})
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
	if _, err := prepareUnit(systemd.Agent(), &ConfigLoader{}, served{}); err == nil {
		t.Error("a service without a configuration file is prepared")
	}
}

// TestInstallChecksFirst checks that the install command rejects an invalid configuration first, so that the error is
// the same with every service manager.
func TestInstallChecksFirst(t *testing.T) {
	root := GroupCommand("toy", "", ServiceCommand(systemd.Agent(),
		func(*ConfigLoader) (ServiceConfig, error) { return nil, errors.New("bad configuration") }))
	var errs bytes.Buffer
	root.SetErr(&errs)
	if code := runRootCommand(t.Context(), root, []string{"service", "install", "--print"}); code != exitFailure ||
		!strings.Contains(errs.String(), "bad configuration") {
		t.Errorf("exit %d: %s", code, &errs)
	}
}

// TestManagerIsOfPrint checks that commands on which the flag --manager has no effect reject it.
func TestManagerIsOfPrint(t *testing.T) {
	root := GroupCommand("toy", "", ServiceCommand(systemd.Agent(), func(*ConfigLoader) (ServiceConfig, error) {
		t.Error("the configuration is read first")
		return nil, errors.New("none")
	}))
	var errs bytes.Buffer
	root.SetErr(&errs)
	if code := runRootCommand(t.Context(), root, []string{"service", "install", "--manager",
		"procd"}); code != exitUsage ||
		!strings.Contains(errs.String(), "--manager requires --print") {
		t.Errorf("exit %d: %s", code, &errs)
	}
}
