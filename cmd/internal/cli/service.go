package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/service"
	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// Served is the configuration of a program that can run as a service.
type Served interface {
	// StateFolder is the folder that the program writes to.
	StateFolder() string
	// Files are the files that the program reads, by key.
	Files() map[string]string
}

// ServiceCommand returns the command "service" of a program. unit is the service as a package would install it.
func ServiceCommand[S Served](unit systemd.Unit, load func(l *Loader) (S, error)) *cobra.Command {
	act := func(use, short string, do func(*service.Service) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: Args(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error {
				s, err := service.New(unit)
				if err != nil {
					return err
				}
				return do(s)
			},
		}
	}
	return Group("service", "Install, remove or control the service of this system",
		installCommand(unit, load),
		act("uninstall", "Stop the service and remove it; configuration and state stay", (*service.Service).Uninstall),
		act("start", "Start the service; if it fails, show why", (*service.Service).Start),
		act("stop", "Stop the service", (*service.Service).Stop),
		act("restart", "Stop and start the service", (*service.Service).Restart),
		&cobra.Command{
			Use: "status", Short: "Show whether the service runs: exit status 0 if so, 3 if not, 4 if not installed",
			Args: Args(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error {
				s, err := service.New(unit)
				if err != nil {
					return err
				}
				text, code := s.Status()
				if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil || code == service.Running {
					return err
				}
				return exitError{code}
			},
		})
}

func installCommand[S Served](unit systemd.Unit, load func(l *Loader) (S, error)) *cobra.Command {
	var i installation
	cmd := &cobra.Command{
		Use: "install", Short: "Install the service, after checking its user, program and configuration",
		Args: Args(cobra.NoArgs),
		Long: `Install the service, so that it starts with the system.

The user, the program and the configuration are checked first. If a check or the
installation fails, nothing is left behind. --print only shows what would be installed,
here or on another system: no service manager needs to run, and the configuration need
not be there.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if i.show {
				cfg, err := load(&i.Loader)
				return i.print(cmd, unit, cfg, err)
			}
			if i.system != "" {
				return Usage("--system goes with --print: a service is installed on the system that is here")
			}
			if err := service.MayChange(); err != nil {
				return err
			}
			cfg, err := load(&i.Loader)
			if err != nil {
				return err
			}
			return i.install(cmd, unit, cfg)
		},
	}
	i.fileFlag(cmd, unit.Program)
	f := cmd.Flags()
	f.StringVar(&i.user, "user", "",
		fmt.Sprintf("user that runs the service; it must exist (default: %s on Linux, the system's elsewhere)",
			unit.User))
	f.BoolVar(&i.now, "now", false, "also start the service")
	f.BoolVar(&i.show, "print", false, "only show what would be installed")
	f.StringVar(&i.system, "system", "", "with --print: "+strings.Join(service.Systems(), ", ")+" (default: this one)")
	return cmd
}

// installation is what the flags say.
type installation struct {
	Loader
	user, system string
	now, show    bool
}

// print shows what would be installed, with the default state folder if the configuration cannot be loaded.
func (i *installation) print(cmd *cobra.Command, unit systemd.Unit, cfg Served, bad error) error {
	if i.system != "" && !slices.Contains(service.Systems(), i.system) {
		return Usage("--system is %s; want %s", i.system, strings.Join(service.Systems(), ", "))
	}
	folder := "/var/lib/" + unit.Program
	if bad == nil {
		folder = cfg.StateFolder()
	} else if _, err := fmt.Fprintf(cmd.ErrOrStderr(),
		"the configuration cannot be used, so the state folder is taken to "+
			"be %s: %v\n", folder, bad); err != nil {
		return err
	}
	mine, err := i.prepare(unit, folder)
	if err != nil {
		return err
	}
	text, err := service.Render(i.system, mine)
	if err != nil {
		return err
	}
	return printText(cmd, text)
}

func (i *installation) install(cmd *cobra.Command, unit systemd.Unit, cfg Served) error {
	mine, err := i.prepare(unit, cfg.StateFolder())
	if err != nil {
		return err
	}
	s, err := service.New(mine)
	if err != nil {
		return err
	}
	files := cfg.Files()
	files["the configuration"] = i.Path
	if err := s.Install(files); err != nil {
		return err
	}
	if i.now {
		return s.Start()
	}
	return printText(cmd, fmt.Sprintf("%s is installed and will start with the system; to start it now: %s "+
		"service start\n", unit.Program, unit.Program))
}

// prepare returns the unit for the running program, the configuration that the command line names, and a state folder.
func (i *installation) prepare(unit systemd.Unit, folder string) (systemd.Unit, error) {
	program, err := os.Executable()
	if err != nil {
		return unit, err
	}
	if unit.Executable, err = filepath.EvalSymlinks(program); err != nil {
		return unit, err
	}
	if i.Path == "" {
		return unit, errors.New("a service needs a configuration file: --config FILE")
	}
	if i.Path, err = filepath.Abs(i.Path); err != nil {
		return unit, err
	}
	if i.Path != defaultFile(unit.Program) {
		unit.Config = i.Path
	}
	if folder = filepath.Clean(folder); folder != "/var/lib/"+unit.Program {
		unit.StateDir = folder
	}
	linux := runtime.GOOS == "linux"
	if i.system != "" {
		linux = i.system == "systemd" || i.system == "openrc"
	}
	if i.user != "" || !linux {
		unit.User = i.user // empty = the system's default user
	}
	return unit, nil
}

func printText(cmd *cobra.Command, text string) error {
	_, err := fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}
