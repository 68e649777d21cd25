package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	kardianos "github.com/kardianos/service"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// manager is what we use of a kardianos/service Service.
type manager interface {
	Install() error
	Uninstall() error
	Start() error
	Stop() error
	Restart() error
	Status() (kardianos.Status, error)
}

// Service is a program of ours and the service manager of this system.
type Service struct {
	unit    systemd.Unit
	on      string // a key of platforms
	text    string
	file    string // of the service; empty if there is none
	manager manager

	mayChange func() error
	packaged  []string // folders of units that belong to packages
	// run runs a program of systemd and returns what it wrote to its standard output.
	run func(args ...string) (string, error)
}

// New renders the service and touches nothing. The error names what cannot be
// rendered, or a service manager that is not supported.
func New(u systemd.Unit) (*Service, error) {
	return on(kardianos.Platform(), u)
}

func on(name string, u systemd.Unit) (*Service, error) {
	p, known := platforms[name]
	if !known {
		return nil, fmt.Errorf("this system's service manager (%s) is not supported; systemd, OpenRC, launchd and "+
			"Windows are: "+
			"with any other, let it run %q under a supervisor, as a user of its own", name, u.Executable+" run")
	}
	text, err := p.render(u)
	if err != nil {
		return nil, err
	}
	s := &Service{
		unit: u, on: name, text: text, mayChange: MayChange, run: output,
		packaged: []string{"/lib/systemd/system", "/usr/lib/systemd/system", "/usr/local/lib/systemd/system"},
	}
	if p.file != "" {
		s.file = fmt.Sprintf(p.file, u.Program)
	}
	options := kardianos.KeyValue{"OnFailure": "restart", "OnFailureDelayDuration": "5s", "DelayedAutoStart": true}
	if p.option != "" {
		options[p.option] = text
	}
	s.manager, err = kardianos.New(nil, &kardianos.Config{
		Name: u.Program, DisplayName: u.Program, Description: u.Description, UserName: u.User,
		Executable: u.Executable, Arguments: arguments(u), Option: options,
	})
	return s, err
}

// Text returns what is installed: the unit, or its like.
func (s *Service) Text() string { return s.text }

// Install makes the program a service that starts with the system; it does not
// start it now. files are what the service must be able to read, by what they
// are for people. Nothing is left behind if it fails.
func (s *Service) Install(files map[string]string) error {
	if err := s.check(files); err != nil {
		return err
	}
	if err := s.manager.Install(); err != nil {
		return errors.Join(fmt.Errorf("%s could not be installed, and nothing was left behind: %w", s.unit.Program,
			err), s.sweep())
	}
	return nil
}

// sweep removes what a failed installation has left.
func (s *Service) sweep() error {
	if s.file == "" {
		return nil
	}
	if s.on == onSystemd {
		_, _ = s.run("systemctl", "disable", s.unit.Program+".service") // there may be no link yet
	}
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.on == onSystemd {
		_, _ = s.run("systemctl", "daemon-reload") // the first error is the one to show
	}
	return nil
}

// Uninstall stops the service and takes it away. Configuration and state stay.
func (s *Service) Uninstall() error {
	if err := s.mayChange(); err != nil {
		return err
	}
	if path := s.packageFile(); path != "" && !s.installed() {
		return fmt.Errorf("%s is a package's (%s): remove it with the package", s.unit.Program, path)
	}
	if !s.installed() {
		return fmt.Errorf("%s is not installed as a service", s.unit.Program)
	}
	if s.running() {
		if err := s.manager.Stop(); err != nil {
			return fmt.Errorf("%s could not be stopped, and was not removed: %w", s.unit.Program, err)
		}
	}
	if err := s.manager.Uninstall(); err != nil {
		return fmt.Errorf("%s could not be removed: %w", s.unit.Program, err)
	}
	if s.on == onSystemd {
		_, _ = s.run("systemctl", "reset-failed", s.unit.Program+".service") // which it need not be
	}
	return nil
}

// Start starts the service. On systemd it returns when the program is ready;
// the error tells the program's own last words.
func (s *Service) Start() error { return s.change("started", s.manager.Start) }

// Stop stops the service and waits for its end.
func (s *Service) Stop() error { return s.change("stopped", s.manager.Stop) }

// Restart is Stop and Start. On systemd a service that runs is reloaded first:
// if its configuration is bad, it runs on.
func (s *Service) Restart() error {
	return s.change("restarted", func() error {
		if s.on == onSystemd && s.show()["ActiveState"] == "active" {
			if _, err := s.run("systemctl", "reload", s.unit.Program+".service"); err != nil {
				return errBadConfig
			}
		}
		return s.manager.Restart()
	})
}

var errBadConfig = errors.New("the configuration is bad, and the service runs on with the one before")

func (s *Service) change(done string, act func() error) error {
	if err := s.mayChange(); err != nil {
		return err
	}
	if !s.installed() && s.packageFile() == "" {
		return fmt.Errorf("%s is not installed as a service; do that first: %s service install", s.unit.Program,
			s.unit.Program)
	}
	if err := act(); err != nil {
		return fmt.Errorf("%s could not be %s: %w", s.unit.Program, done, s.explain(err))
	}
	return nil
}

// installed tells whether we have installed the service.
func (s *Service) installed() bool {
	if s.file == "" {
		_, err := s.manager.Status()
		return !errors.Is(err, kardianos.ErrNotInstalled)
	}
	_, err := os.Lstat(s.file)
	return err == nil
}

// running tells whether there is something to stop.
func (s *Service) running() bool {
	if s.on == onSystemd {
		state := s.show()["ActiveState"]
		return state != "inactive" && state != "failed"
	}
	status, _ := s.manager.Status() // an error is not running
	return status == kardianos.StatusRunning
}
