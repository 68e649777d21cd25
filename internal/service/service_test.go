package service

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kardianos "github.com/kardianos/service"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// fake simulates a service manager in tests.
type fake struct {
	file   string
	status kardianos.Status
	err    error // error returned by every action
	did    []string
}

func (f *fake) do(what string) error {
	f.did = append(f.did, what)
	return f.err
}

func (f *fake) Install() error {
	// Write the file before a possible failure, as kardianos/service does.
	if err := os.WriteFile(f.file, nil, 0o644); err != nil {
		return err
	}
	return f.do("install")
}

func (f *fake) Uninstall() error                  { return errors.Join(f.do("uninstall"), os.Remove(f.file)) }
func (f *fake) Start() error                      { return f.do("start") }
func (f *fake) Stop() error                       { return f.do("stop") }
func (f *fake) Restart() error                    { return f.do("restart") }
func (f *fake) Status() (kardianos.Status, error) { return f.status, f.err }

// newFake returns a service on the platform with the given name. The service can be installed for the user who runs the
// test.
func newFake(t *testing.T, name string) (*Service, *fake) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	u := systemd.Agent()
	u.Executable, u.User = "/bin/sh", me.Username
	s, err := newForPlatform(name, u)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &fake{file: filepath.Join(dir, "service"), status: kardianos.StatusStopped}
	s.serviceFilePath, s.manager, s.checkPrivileges, s.packageUnitFolders = f.file, f, func() error { return nil },
		[]string{dir}
	s.runSystemdCommand = func(args ...string) (string, error) {
		f.did = append(f.did, strings.Join(args[:2], " "))
		return "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nNRestarts=0\n", nil
	}
	return s, f
}

func (f *fake) wants(t *testing.T, did ...string) {
	t.Helper()
	if !slices.Equal(f.did, did) {
		t.Errorf("did %q, want %q", f.did, did)
	}
}

func wantError(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, want one that says %q", err, says)
	}
}

func TestLife(t *testing.T) {
	for _, name := range []string{systemdPlatform, "linux-openrc"} {
		s, f := newFake(t, name)
		wantError(t, s.Start(), "not installed")
		wantError(t, s.Uninstall(), "not installed")
		if err := s.Install(nil); err != nil {
			t.Fatal(err)
		}
		wantError(t, s.Install(nil), "already exists")
		for _, act := range []func() error{s.Start, s.Restart, s.Stop} {
			if err := act(); err != nil {
				t.Error(err)
			}
		}
		if name == systemdPlatform {
			f.wants(t, "install", "start", "systemctl show", "systemctl reload", "restart", "stop")
		} else {
			f.wants(t, "install", "start", "restart", "stop")
		}
	}
}

// TestRestartNeedsAGoodConfiguration checks that a running service is not restarted with an invalid configuration.
func TestRestartNeedsAGoodConfiguration(t *testing.T) {
	s, f := newFake(t, systemdPlatform)
	if err := s.Install(nil); err != nil {
		t.Fatal(err)
	}
	show := s.runSystemdCommand
	s.runSystemdCommand = func(args ...string) (string, error) {
		if args[1] == "reload" {
			return "", errors.New("exit status 1")
		}
		return show(args...)
	}
	wantError(t, s.Restart(), "continues with the previous configuration")
	if slices.Contains(f.did, "restart") {
		t.Errorf("did %q", f.did)
	}
}

// TestUninstallStopsFirst checks that a service is stopped before it is removed, and that it is not removed if it
// cannot be stopped.
func TestUninstallStopsFirst(t *testing.T) {
	s, f := newFake(t, systemdPlatform)
	if err := errors.Join(s.Install(nil), s.Uninstall()); err != nil {
		t.Fatal(err)
	}
	f.wants(t, "install", "systemctl show", "stop", "uninstall", "systemctl reset-failed")

	s, f = newFake(t, "linux-openrc")
	if err := s.Install(nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Uninstall(); err != nil {
		t.Fatal(err)
	}
	f.wants(t, "install", "uninstall") // the service had already been stopped

	s, f = newFake(t, systemdPlatform)
	if err := s.Install(nil); err != nil {
		t.Fatal(err)
	}
	f.err = errors.New("it hangs")
	wantError(t, s.Uninstall(), "was not removed")
	if !s.installed() {
		t.Error("it was removed all the same")
	}
}

func TestFailedInstallLeavesNothing(t *testing.T) {
	s, f := newFake(t, systemdPlatform)
	f.err = errors.New("no room")
	wantError(t, s.Install(nil), "all changes were undone")
	if _, err := os.Lstat(f.file); err == nil {
		t.Error("the file is left")
	}
	f.wants(t, "install", "systemctl disable", "systemctl daemon-reload")
	f.err = nil
	if err := s.Install(nil); err != nil {
		t.Errorf("the next try: %v", err)
	}
}

// TestRefusals checks each reason to refuse an installation separately.
func TestRefusals(t *testing.T) {
	private := filepath.Join(t.TempDir(), "private")
	for _, tt := range []struct {
		says  string
		spoil func(s *Service, files map[string]string)
	}{
		{"use sudo", func(s *Service,
			_ map[string]string) {
			s.checkPrivileges = func() error { return errors.New("use sudo") }
		}},
		{"useradd --system", func(s *Service, _ map[string]string) { s.unit.User = "no-such-user" }},
		{"the program: ", func(s *Service, _ map[string]string) { s.unit.Executable = "/no/such/program" }},
		{"chmod 755", func(s *Service, _ map[string]string) { s.unit.Executable = "/etc/passwd" }},
		{"chmod 755", func(s *Service, _ map[string]string) { s.unit.Executable = "/etc" }},
		{"ProtectHome", func(_ *Service, files map[string]string) { files["data.csv"] = "/home/me/data.csv" }},
		{"PrivateTmp", func(s *Service, _ map[string]string) { s.unit.StateDir = "/tmp/state" }},
		{"install -d -m 700", func(s *Service, _ map[string]string) { s.unit.StateDir = "/no/such/folder" }},
		{"hide the package's unit", func(s *Service, _ map[string]string) {
			if err := os.WriteFile(filepath.Join(s.packageUnitFolders[0], "agentd.service"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"has no read permission", func(s *Service, files map[string]string) {
			if err := os.WriteFile(private, nil, 0o000); err != nil {
				t.Fatal(err)
			}
			s.platformName = "linux-openrc" // OpenRC does not hide temporary folders from services
			s.unit.User, files["broker.ca_file"] = "nobody", private
		}},
	} {
		s, f := newFake(t, systemdPlatform)
		files := map[string]string{"identity.key_file": "/etc/agentd/agent.key", "broker.ca_file": "",
			"d2d.broker.ca_file": "/no/such/file"}
		tt.spoil(s, files)
		wantError(t, s.Install(files), tt.says)
		if len(f.did) > 0 {
			t.Errorf("%s: did %q", tt.says, f.did)
		}
	}
}

func TestUnsupported(t *testing.T) {
	_, err := newForPlatform("unix-systemv", systemd.Agent())
	wantError(t, err, "unix-systemv")
	u := systemd.Agent()
	u.Executable = "/opt/my agent"
	for _, name := range []string{systemdPlatform, "linux-openrc"} {
		_, err := newForPlatform(name, u)
		wantError(t, err, "the program's path")
	}
	u.User = "{{Name}}"
	_, err = newForPlatform("darwin-launchd", u)
	wantError(t, err, "{{")
}
