package service

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	kardianos "github.com/kardianos/service"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// kardianosService contains the methods of kardianos.Service that are used here.
type kardianosService interface {
	Install() error
	Uninstall() error
	Start() error
	Stop() error
	Restart() error
	Status() (kardianos.Status, error)
}

// Service is one of our programs as a system service.
type Service struct {
	unit            systemd.Unit
	platformName    string // key of platformByName
	unitText        string
	serviceFilePath string // path of the service file; empty on a platform without service files
	manager         kardianosService

	checkPrivileges    func() error
	packageUnitFolders []string // folders in which distribution packages install units
	// runSystemdCommand runs a systemd program and returns its standard output.
	runSystemdCommand func(args ...string) (string, error)
}

// New returns a Service for the unit without changing the system. It returns an error if the service file cannot be
// rendered or the service manager is not supported.
func New(u systemd.Unit) (*Service, error) {
	return newForPlatform(kardianos.Platform(), u)
}

// ownProgram returns the path of the running program, or the given fallback if the path is unknown.
func ownProgram(otherwise string) string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return otherwise
}

// platformByManager maps the short names of the supported service managers, which the flag --manager accepts, to the
// platform names of kardianos/service.
var platformByManager = map[string]string{"systemd": systemdPlatform, "openrc": "linux-openrc",
	"launchd": "darwin-launchd",
	"windows": windowsPlatform}

// Managers returns the short names of the supported service managers.
func Managers() []string { return slices.Sorted(maps.Keys(platformByManager)) }

// Render returns the service file of a unit for one of the service managers that Managers lists. The service manager of
// this system does not matter.
func Render(manager string, u systemd.Unit) (string, error) {
	name, known := platformByManager[manager]
	if !known {
		return "", fmt.Errorf("unknown service manager %q: specify %s", manager, strings.Join(Managers(), ", "))
	}
	return platformByName[name].renderServiceFile(u)
}

// SystemManagerName returns the short name of this system's service manager. If that service manager is not supported,
// it returns "systemd".
func SystemManagerName() string {
	for short, name := range platformByManager {
		if name == kardianos.Platform() {
			return short
		}
	}
	return "systemd"
}

func newForPlatform(name string, u systemd.Unit) (*Service, error) {
	p, known := platformByName[name]
	if !known {
		return nil, fmt.Errorf("unsupported service manager %s (supported: systemd, OpenRC, launchd and Windows): "+
			"create a service that runs %q under a dedicated user account", name,
			ownProgram(u.Executable)+" run")
	}
	text, err := p.renderServiceFile(u)
	if err != nil {
		return nil, err
	}
	s := &Service{
		unit: u, platformName: name, unitText: text, checkPrivileges: CheckPrivileges, runSystemdCommand: commandOutput,
		packageUnitFolders: []string{"/lib/systemd/system", "/usr/lib/systemd/system", "/usr/local/lib/systemd/system"},
	}
	if p.filePathFormat != "" {
		s.serviceFilePath = fmt.Sprintf(p.filePathFormat, u.Program)
	}
	options := kardianos.KeyValue{"OnFailure": "restart", "OnFailureDelayDuration": "5s", "DelayedAutoStart": true}
	if p.unitTextOption != "" {
		options[p.unitTextOption] = text
	}
	s.manager, err = kardianos.New(nil, &kardianos.Config{
		Name: u.Program, DisplayName: u.Program, Description: u.Description, UserName: u.User,
		Executable: u.Executable, Arguments: commandArguments(u), Option: options,
	})
	return s, err
}

// Install installs the service, so that it starts at boot, but does not start it now. files contains the paths that the
// service must be able to read; the keys are descriptions for error messages. If the installation fails, Install undoes
// it.
func (s *Service) Install(files map[string]string) error {
	if err := s.checkInstallable(files); err != nil {
		return err
	}
	if err := s.manager.Install(); err != nil {
		return errors.Join(fmt.Errorf("cannot install the service %s; all changes were undone: %w", s.unit.Program,
			err), s.removeFailedInstall())
	}
	return nil
}

func (s *Service) removeFailedInstall() error {
	if s.serviceFilePath == "" {
		return nil
	}
	if s.platformName == systemdPlatform {
		// Ignore the error, because the unit may not be enabled.
		_, _ = s.runSystemdCommand("systemctl", "disable", s.unit.Program+".service")
	}
	if err := os.Remove(s.serviceFilePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.platformName == systemdPlatform {
		_, _ = s.runSystemdCommand("systemctl", "daemon-reload") // only the first error is reported
	}
	return nil
}

// Uninstall stops the service and removes it. Configuration and state are kept.
func (s *Service) Uninstall() error {
	if err := s.checkPrivileges(); err != nil {
		return err
	}
	if path := s.packageFile(); path != "" && !s.installed() {
		return fmt.Errorf("the service %s was installed by a package (%s): to remove the service, remove the package",
			s.unit.Program, path)
	}
	if !s.installed() {
		return fmt.Errorf("%s is not installed as a service", s.unit.Program)
	}
	if s.running() {
		if err := s.manager.Stop(); err != nil {
			return fmt.Errorf("cannot stop the service %s, so it was not removed: %w", s.unit.Program, err)
		}
	}
	if err := s.manager.Uninstall(); err != nil {
		return fmt.Errorf("cannot remove the service %s: %w", s.unit.Program, err)
	}
	if s.platformName == systemdPlatform {
		// Ignore the error, because systemctl fails if the unit is not in the failed state.
		_, _ = s.runSystemdCommand("systemctl", "reset-failed", s.unit.Program+".service")
	}
	return nil
}

// Start starts the service. On systemd, Start returns when the program has reported that it is ready. The error
// contains the last line that the program has logged.
func (s *Service) Start() error { return s.changeRunState("started", s.manager.Start) }

// Stop stops the service and waits until it has ended.
func (s *Service) Stop() error { return s.changeRunState("stopped", s.manager.Stop) }

// Restart stops the service and starts it again. With systemd, a running service first reloads its configuration. If
// the configuration is invalid, the service is not restarted.
func (s *Service) Restart() error {
	return s.changeRunState("restarted", func() error {
		if s.platformName == systemdPlatform && s.readUnitProperties()["ActiveState"] == "active" {
			if _, err := s.runSystemdCommand("systemctl", "reload", s.unit.Program+".service"); err != nil {
				return errBadConfig
			}
		}
		return s.manager.Restart()
	})
}

var errBadConfig = errors.New("the configuration is invalid; the service continues with the previous configuration")

func (s *Service) changeRunState(done string, act func() error) error {
	if err := s.checkPrivileges(); err != nil {
		return err
	}
	if !s.IsInstalledOrPackaged() {
		return fmt.Errorf("%s is not installed as a service; install it first: %s service install", s.unit.Program,
			s.unit.Program)
	}
	if err := act(); err != nil {
		return fmt.Errorf("the service %s could not be %s: %w", s.unit.Program, done, s.explainUnitFailure(err))
	}
	return nil
}

// installed reports whether Install has installed the service.
func (s *Service) installed() bool {
	if s.serviceFilePath == "" {
		_, err := s.manager.Status()
		return !errors.Is(err, kardianos.ErrNotInstalled)
	}
	_, err := os.Lstat(s.serviceFilePath)
	return err == nil
}

// IsInstalledOrPackaged reports whether a service was installed by Install or by a package.
func (s *Service) IsInstalledOrPackaged() bool { return s.installed() || s.packageFile() != "" }

// running reports whether the service is running, starting or stopping.
func (s *Service) running() bool {
	if s.platformName == systemdPlatform {
		state := s.readUnitProperties()["ActiveState"]
		return state != "inactive" && state != "failed"
	}
	status, _ := s.manager.Status() // an error means that the service is not running
	return status == kardianos.StatusRunning
}
