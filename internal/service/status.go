package service

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	kardianos "github.com/kardianos/service"
)

// The exit codes of status commands, as the Linux Standard Base has them.
const (
	ExitCodeRunning      = 0
	ExitCodeNotRunning   = 3
	ExitCodeNotInstalled = 4
)

// Status returns the service's status for people, and the exit code of the status command.
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

// unitProperties are the properties of a unit from which its status is described.
var unitProperties = []string{
	"LoadState", "LoadError", "ActiveState", "SubState", "Result", "ExecMainStatus", "NRestarts", "StatusText",
	"MainPID",
	"UnitFileState", "FragmentPath", "DropInPaths", "ExecMainPID",
}

// readUnitProperties asks systemd for the properties in shown.
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

// describeUnitState returns the status and exit code that a unit's properties mean.
func describeUnitState(program string, p map[string]string) (text string, code int) {
	switch p["LoadState"] {
	case "loaded":
	case "not-found":
		return program + " is not installed as a service\n", ExitCodeNotInstalled
	case "unknown": // of show
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
		line("  says:      %s", p["StatusText"])
	}
	if p["MainPID"] != "" && p["MainPID"] != "0" {
		line("  process:   %s", p["MainPID"])
	}
	if p["Result"] != "success" || code != ExitCodeRunning && p["ExecMainStatus"] != "0" {
		line("  last end:  %s, exit status %s", p["Result"], p["ExecMainStatus"])
	}
	if p["NRestarts"] != "0" {
		line("  restarts:  %s", p["NRestarts"])
	}
	line("  at boot:   %s", p["UnitFileState"])
	line("  unit:      %s", strings.Join(strings.Fields(p["FragmentPath"]+" "+p["DropInPaths"]), " "))
	return b.String(), code
}

// explainUnitFailure says how the unit's last process ended, where that is why the service manager failed, and adds the
// last line that it logged.
func (s *Service) explainUnitFailure(err error) error {
	if s.platformName != systemdPlatform {
		return err
	}
	p := s.readUnitProperties()
	problem := err
	if result := p["Result"]; !errors.Is(err, errBadConfig) && result != "" && result != "success" {
		problem = fmt.Errorf("%s, exit status %s", p["Result"], p["ExecMainStatus"])
	}
	_, _ = s.runSystemdCommand("journalctl", "--sync") // the journal may be behind; without it the line may be missing
	// By the process id: where a process ends before the journal has read its line, that line has no invocation id.
	said, journal := s.runSystemdCommand("journalctl", "--no-pager", "--output=cat", "--lines=1", "--boot",
		"_SYSTEMD_UNIT="+s.unit.Program+".service", "_PID="+p["ExecMainPID"])
	if journal == nil && strings.TrimSpace(said) != "" {
		problem = fmt.Errorf("%w\n%s", problem, strings.TrimSpace(said))
	}
	return fmt.Errorf("%w\nsee also: journalctl -u %s", problem, s.unit.Program)
}

// commandOutput runs a program and returns its standard output; the error holds its standard error.
func commandOutput(args ...string) (string, error) {
	out, err := exec.Command(args[0], args[1:]...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
