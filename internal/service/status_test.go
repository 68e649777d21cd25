package service

import (
	"errors"
	"slices"
	"strings"
	"testing"

	kardianos "github.com/kardianos/service"
)

func TestDescribe(t *testing.T) {
	for _, tt := range []struct {
		shown string
		code  int
		text  string
	}{
		{"LoadState=not-found ActiveState=inactive", ExitCodeNotInstalled, "agentd is not installed as a service\n"},
		{"LoadState=bad-setting LoadError=oops", ExitCodeNotInstalled,
			"agentd: systemd could not load the unit: bad-setting oops\n"},
		{
			"LoadState=loaded ActiveState=active SubState=running Result=success ExecMainStatus=0 NRestarts=2 " +
				"StatusText=ok MainPID=7 UnitFileState=enabled FragmentPath=/a DropInPaths=/b", ExitCodeRunning,
			"agentd is active (running)\n  status:    ok\n  process:   7\n  restarts:  2\n  at boot:   enabled\n  " +
				"unit:      /a /b\n",
		},
		{"LoadState=loaded ActiveState=reloading SubState=reload Result=success NRestarts=0", ExitCodeRunning,
			"agentd is reloading (reload)\n"},
		{
			"LoadState=loaded ActiveState=activating SubState=auto-restart Result=exit-code ExecMainStatus=217 " +
				"NRestarts=9 StatusText=old", ExitCodeNotRunning,
			"agentd is activating (auto-restart)\n  last exit: exit-code, exit status 217\n  restarts:  9\n",
		},
		{"LoadState=loaded ActiveState=failed SubState=failed Result=exit-code ExecMainStatus=78 NRestarts=0",
			ExitCodeNotRunning, "agentd is failed (failed)\n  last exit: exit-code, exit status 78\n"},
		{"LoadState=loaded ActiveState=inactive SubState=dead Result=success ExecMainStatus=0 NRestarts=0",
			ExitCodeNotRunning,
			"agentd is inactive (dead)\n"},
	} {
		s, _ := newFake(t, systemdPlatform)
		s.runSystemdCommand = func(...string) (string, error) {
			return strings.ReplaceAll(tt.shown, " ", "\n") + "\n",
				nil
		}
		if text, code := s.Status(); code != tt.code || !strings.HasPrefix(text, tt.text) {
			t.Errorf("%s: exit %d, want %d, and\n%swant\n%s", tt.shown, code, tt.code, text, tt.text)
		}
	}
	s, _ := newFake(t, systemdPlatform)
	s.runSystemdCommand = func(...string) (string, error) { return "", errors.New("no bus") }
	if text, code := s.Status(); code != ExitCodeNotInstalled || !strings.Contains(text, "no bus") {
		t.Errorf("exit %d: %s", code, text)
	}
}

func TestStatusElsewhere(t *testing.T) {
	s, f := newFake(t, "linux-openrc")
	if text, code := s.Status(); code != ExitCodeNotInstalled {
		t.Errorf("nothing installed: exit %d: %s", code, text)
	}
	if err := s.Install(nil); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		status kardianos.Status
		err    error
		code   int
	}{
		{kardianos.StatusRunning, nil, ExitCodeRunning}, {kardianos.StatusStopped, nil, ExitCodeNotRunning},
		{kardianos.StatusUnknown, errors.New("crashed"), ExitCodeNotRunning},
	} {
		f.status, f.err = tt.status, tt.err
		if text, code := s.Status(); code != tt.code {
			t.Errorf("%v: exit %d: %s", tt, code, text)
		}
	}
}

// TestExplain checks that the error contains the program's last log line instead of "exit status 1".
func TestExplain(t *testing.T) {
	s, f := newFake(t, systemdPlatform)
	if err := s.Install(nil); err != nil {
		t.Fatal(err)
	}
	synced := false
	s.runSystemdCommand = func(args ...string) (string, error) {
		switch {
		case args[0] == "journalctl" && args[1] == "--sync":
			synced = true
			return "", nil
		case args[0] == "journalctl" && !synced:
			return "", nil // the journal does not contain the last line of the program yet
		// The journal entry has no invocation id, because the process ended too early.
		case args[0] == "journalctl" && slices.Contains(args, "_PID=12"):
			return "agentd.yaml:3:1: unknown key\n", nil
		}
		return "LoadState=loaded\nResult=exit-code\nExecMainStatus=78\nExecMainPID=12\n", nil
	}
	f.err = errors.New("exit status 1")
	wantError(t, s.Start(), "agentd could not be started: exit-code, exit status 78\nagentd.yaml:3:1: unknown "+
		"key\nsee also: journalctl -u agentd")
	s.runSystemdCommand = func(args ...string) (string, error) { // in this case, systemd has started no process
		return map[string]string{"systemctl": "LoadState=masked\nResult=success\nExecMainStatus=0\n"}[args[0]], nil
	}
	f.err = errors.New("exit status 1: Unit agentd.service is masked.")
	wantError(t, s.Start(), "agentd could not be started: exit status 1: Unit agentd.service is masked.\nsee also: "+
		"journalctl -u agentd")
}
