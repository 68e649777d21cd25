package service

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	kardianos "github.com/kardianos/service"
)

// Exit codes of the status command, as defined by the Linux Standard Base.
const (
	ExitCodeRunning      = 0
	ExitCodeNotRunning   = 3
	ExitCodeNotInstalled = 4
)

// Status returns the service's status as text, and the exit code of the status command.
func (s *Service) Status() (text string, code int) {
	if s.platformName == systemdPlatform {
		return describeUnitState(s.unit.Program, s.readUnitProperties())
	}
	status, err := s.manager.Status()
	switch {
	case !s.installed():
		return s.unit.Program + " is not installed as a service\n", ExitCodeNotInstalled
	case status == kardianos.StatusRunning:
		return s.unit.Program + " is running\n", ExitCodeRunning
	case err != nil:
		return fmt.Sprintf("%s is not running: %v\n", s.unit.Program, err), ExitCodeNotRunning
	default:
		return s.unit.Program + " is stopped\n", ExitCodeNotRunning
	}
}

// unitProperties are the properties that determine the status of a unit.
var unitProperties = []string{
	"LoadState", "LoadError", "ActiveState", "SubState", "Result", "ExecMainStatus", "NRestarts", "StatusText",
	"MainPID",
	"UnitFileState", "FragmentPath", "DropInPaths", "ExecMainPID",
}

// readUnitProperties returns the unit's properties from systemd.
func (s *Service) readUnitProperties() map[string]string {
	text, err := s.runSystemdCommand("systemctl", "show", "--property="+strings.Join(unitProperties, ","),
		s.unit.Program+".service")
	if err != nil {
		return map[string]string{"LoadState": "unknown", "LoadError": err.Error()}
	}
	properties := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			properties[name] = value
		}
	}
	return properties
}

// describeUnitState returns the status text and the exit code for a unit's properties.
func describeUnitState(program string, p map[string]string) (text string, code int) {
	switch p["LoadState"] {
	case "loaded":
	case "not-found":
		return program + " is not installed as a service\n", ExitCodeNotInstalled
	case "unknown": // readUnitProperties returns "unknown" if it fails
		return fmt.Sprintf("%s: systemctl show failed: %s\n", program, p["LoadError"]), ExitCodeNotInstalled
	default:
		return fmt.Sprintf("%s: systemd could not load the unit: %s %s\n", program, p["LoadState"], p["LoadError"]),
			ExitCodeNotInstalled
	}
	code = ExitCodeNotRunning
	if p["ActiveState"] == "active" || p["ActiveState"] == "reloading" {
		code = ExitCodeRunning
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s is %s (%s)", program, p["ActiveState"], p["SubState"])
	if p["StatusText"] != "" && code == ExitCodeRunning {
		line("  status:    %s", p["StatusText"])
	}
	if p["MainPID"] != "" && p["MainPID"] != "0" {
		line("  process:   %s", p["MainPID"])
	}
	if p["Result"] != "success" || code != ExitCodeRunning && p["ExecMainStatus"] != "0" {
		line("  last exit: %s, exit status %s", p["Result"], p["ExecMainStatus"])
	}
	if p["NRestarts"] != "0" {
		line("  restarts:  %s", p["NRestarts"])
	}
	line("  at boot:   %s", p["UnitFileState"])
	line("  unit:      %s", strings.Join(strings.Fields(p["FragmentPath"]+" "+p["DropInPaths"]), " "))
	return b.String(), code
}

// explainUnitFailure returns an error with the exit status of the unit's last process and the last line that it logged.
func (s *Service) explainUnitFailure(err error) error {
	if s.platformName != systemdPlatform {
		return err
	}
	p := s.readUnitProperties()
	problem := err
	if result := p["Result"]; !errors.Is(err, errBadConfig) && result != "" && result != "success" {
		problem = fmt.Errorf("%s, exit status %s", p["Result"], p["ExecMainStatus"])
	}
	// Sync the journal first, because a line that was just logged may otherwise be missing.
	_, _ = s.runSystemdCommand("journalctl", "--sync")
	// Select the lines by process id instead of invocation id. If a process ends before journald has read its line, the
	// line has no invocation id.
	said, journal := s.runSystemdCommand("journalctl", "--no-pager", "--output=cat", "--lines=1", "--boot",
		"_SYSTEMD_UNIT="+s.unit.Program+".service", "_PID="+p["ExecMainPID"])
	if journal == nil && strings.TrimSpace(said) != "" {
		problem = fmt.Errorf("%w\n%s", problem, strings.TrimSpace(said))
	}
	return fmt.Errorf("%w\nsee also: journalctl -u %s", problem, s.unit.Program)
}

// commandOutput runs a command and returns the standard output. An error contains the standard error output.
func commandOutput(args ...string) (string, error) {
	out, err := exec.Command(args[0], args[1:]...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
