package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/service"
	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// ServiceConfig is the configuration of a program that can run as a service.
type ServiceConfig interface {
	// StateFolder returns the folder that the program writes to.
	StateFolder() string
	// FilesByKey returns the paths of the files that the program reads, by configuration key.
	FilesByKey() map[string]string
}

// ServiceCommand returns a program's "service" command. unit describes the systemd service that the distribution
// packages install.
func ServiceCommand[S ServiceConfig](unit systemd.Unit, load func(l *ConfigLoader) (S, error)) *cobra.Command {
	act := func(use, short string, do func(*service.Service) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: ArgsCheckWithUsageError(cobra.NoArgs),
			RunE: func(*cobra.Command, []string) error {
				s, err := service.New(unit)
				if err != nil {
					return err
				}
				return do(s)
			},
		}
	}
	return GroupCommand("service", "Install, remove or control the system service",
		serviceInstallCommand(unit, load),
		act("uninstall", "Stop and remove the service; keep its configuration and state", (*service.Service).Uninstall),
		act("start", "Start the service; if it fails, show the reason", (*service.Service).Start),
		act("stop", "Stop the service", (*service.Service).Stop),
		act("restart", "Restart the service", (*service.Service).Restart),
		&cobra.Command{
			Use: "status", Short: "Show whether the service is running",
			Long: `Show whether the service is running.

The exit status is 0 if it is running, 3 if it is not running, and 4 if it is not
installed.`,
			Args: ArgsCheckWithUsageError(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error {
				s, err := service.New(unit)
				if err != nil {
					return err
				}
				text, code := s.Status()
				if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil || code == service.ExitCodeRunning {
					return err
				}
				return silentExitError{code}
			},
		})
}

func serviceInstallCommand[S ServiceConfig](unit systemd.Unit, load func(l *ConfigLoader) (S, error)) *cobra.Command {
	var l ConfigLoader
	var now, show bool
	var manager string
	cmd := &cobra.Command{
		Use: "install", Short: "Install the service, after checking its user, program and configuration",
		Args: ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Install the service, so that it starts with the system.

The command first checks the user, the program and the configuration. If a check or the
installation fails, the system stays unchanged. With --print the command only shows
the files that it would install. To see the files for another system, such as an image,
add --manager.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !show && cmd.Flags().Changed("manager") {
				return UsageErrorf("--manager requires --print")
			}
			if !show {
				if err := service.CheckPrivileges(); err != nil {
					return err
				}
			}
			cfg, err := load(&l)
			if err != nil {
				return err
			}
			mine, err := prepareUnit(unit, &l, cfg)
			if err != nil {
				return err
			}
			if show {
				text, err := service.Render(manager, mine)
				if err != nil {
					return err
				}
				return printText(cmd, text)
			}
			s, err := service.New(mine)
			if err != nil {
				return err
			}
			files := cfg.FilesByKey()
			files["the configuration"] = l.Path
			if err := s.Install(files); err != nil {
				return err
			}
			if now {
				return s.Start()
			}
			return printText(cmd, fmt.Sprintf("%s is installed and starts at every boot; to start it now: %s service "+
				"start\n", unit.Program, unit.Program))
		},
	}
	l.addConfigFileFlag(cmd, unit.Program)
	if runtime.GOOS != "linux" {
		unit.User = "" // the unit's default user applies only to systemd
	}
	cmd.Flags().StringVar(&unit.User, "user", unit.User, "user that runs the service; it must exist")
	cmd.Flags().BoolVar(&now, "now", false, "start the service after installing it")
	cmd.Flags().BoolVar(&show, "print", false, "show what would be installed, without installing it")
	cmd.Flags().StringVar(&manager, "manager", service.SystemManagerName(),
		"service manager for which --print shows the files: "+strings.Join(service.Managers(), ", "))
	return cmd
}

// prepareUnit completes unit with the path of the running program and the configuration given on the command line.
func prepareUnit(unit systemd.Unit, l *ConfigLoader, cfg ServiceConfig) (systemd.Unit, error) {
	program, err := os.Executable()
	if err != nil {
		return unit, err
	}
	if unit.Executable, err = filepath.EvalSymlinks(program); err != nil {
		return unit, err
	}
	if l.Path == "" {
		return unit, errors.New("a service requires a configuration file: use --config FILE")
	}
	if l.Path, err = filepath.Abs(l.Path); err != nil {
		return unit, err
	}
	if l.Path != DefaultConfigFile(unit.Program) {
		unit.Config = l.Path
	}
	if folder := filepath.Clean(cfg.StateFolder()); folder != "/var/lib/"+unit.Program {
		unit.StateDir = folder
	}
	return unit, nil
}

func printText(cmd *cobra.Command, text string) error {
	_, err := fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}
