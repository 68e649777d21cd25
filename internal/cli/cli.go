// Package cli contains the parts that the command lines of all programs share: exit codes, signals, and the commands
// config, key and service.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// Exit codes of all programs, in addition to 0 for success and config.ExitBadConfig.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // a shell's exit code for a program ended by Ctrl-C
)

// silentExitError ends a program with an exit code and prints no message.
type silentExitError struct{ code int }

func (e silentExitError) Error() string { return fmt.Sprint("exit status ", e.code) }

// SilentFailure returns an error that makes the program exit with status 1 without printing a message. A command
// returns it after printing the problem itself.
func SilentFailure() error { return silentExitError{exitFailure} }

// usageError marks errors in the command line itself.
type usageError struct{ error }

// Main runs a program's command line, with a context that ends on SIGINT or
// SIGTERM, and returns its exit code. A second signal ends the process at once.
func Main(root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return runRootCommand(ctx, root, args)
}

func runRootCommand(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if exit := (silentExitError{}); errors.As(err, &exit) {
		return exit.code
	}
	printError(root, err)
	var bad *config.Error
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &bad):
		return config.ExitBadConfig
	case errors.As(err, &usageError{}), cmd == root:
		// The root command itself cannot fail, so the error is an unknown command.
		fmt.Fprintf(root.ErrOrStderr(), "see '%s --help'\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailure
}

// printError prints err and the invalid lines of the configuration file to the standard error stream. If that stream is
// connected to journald, it prints one line per error instead, with priority 3.
func printError(root *cobra.Command, err error) {
	if !logging.IsJournalStream(root.ErrOrStderr()) {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
		return
	}
	for _, line := range config.ErrorLines(err) {
		fmt.Fprintln(root.ErrOrStderr(), "<3>"+line)
	}
}

// ArgsCheckWithUsageError wraps a check of positional arguments so that its errors are usage errors.
func ArgsCheckWithUsageError(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// UsageErrorf returns a usage error.
func UsageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// GroupCommand returns a command that only has subcommands.
func GroupCommand(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: ArgsCheckWithUsageError(cobra.NoArgs), DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// ConfigLoader reads a program's configuration from --config and --set.
type ConfigLoader struct {
	Path      string
	Overrides Overrides
}

// AddFlags adds the flags --config and --set to a command of the given program.
func (l *ConfigLoader) AddFlags(cmd *cobra.Command, program string) {
	l.addConfigFileFlag(cmd, program)
	cmd.Flags().Var(&l.Overrides, "set",
		"set a configuration key, such as broker.url=tcp://broker:1883; may be repeated")
}

func (l *ConfigLoader) addConfigFileFlag(cmd *cobra.Command, program string) {
	cmd.Flags().StringVarP(&l.Path, "config",
		"c", cmp.Or(os.Getenv(settings.ConfigPathVariable(program)), DefaultConfigFile(program)), "configuration file")
}

// DefaultConfigFile returns the default path of a program's configuration file.
func DefaultConfigFile(program string) string { return "/etc/" + program + "/" + program + ".yaml" }

// Overrides is the value of the flag --set: configuration keys with their values. Unlike pflag's map flags, it does not
// split the value at commas, because commas separate the elements of a list.
type Overrides map[string]string

// String implements pflag.Value. It returns "", so that the help text shows no default.
func (o *Overrides) String() string { return "" }

// Type implements pflag.Value.
func (o *Overrides) Type() string { return "KEY=VALUE" }

// Set implements pflag.Value.
func (o *Overrides) Set(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok || key == "" {
		return errors.New("want KEY=VALUE")
	}
	if *o == nil {
		*o = Overrides{}
	}
	(*o)[key] = value
	return nil
}

// ConfigCommand returns the commands "config check" and "config show". load reads and validates the configuration.
// open, if not nil, opens its data. Errors of open are only warnings, because the daemon also starts without the data
// and waits for them.
func ConfigCommand[S any](program string, load func(l *ConfigLoader) (S, error),
	open func(l *ConfigLoader) error) *cobra.Command {
	var l ConfigLoader
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration, and show each error with its line number",
		Args: ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := load(&l); err != nil {
				return err
			}
			if open != nil {
				if err := open(&l); err != nil {
					printError(cmd.Root(), fmt.Errorf("warning: %w", err))
					return printLine(cmd.OutOrStdout(), l.Path+" is valid, but the configured data source cannot be "+
						"used now: "+
						program+" would start and wait until the data source is available")
				}
			}
			return printLine(cmd.OutOrStdout(), l.Path+" is valid")
		},
	}
	show := &cobra.Command{
		Use: "show", Short: "Show the configuration in effect, with secrets hidden",
		Args: ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(&l)
			if err != nil {
				return err
			}
			return config.WriteYAML(cmd.OutOrStdout(), cfg)
		},
	}
	l.AddFlags(check, program)
	l.AddFlags(show, program)
	return GroupCommand("config", "Check or show the configuration", check, show)
}

// KeyCommand returns the commands "key new" and "key show".
func KeyCommand() *cobra.Command {
	return GroupCommand("key", "Create or show a key", &cobra.Command{
		Use: "new FILE", Short: "Create a private key file and print its public key",
		Args: ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: `Create a private key file and print its public key. The private key stays on this machine.

Add the public key of an agent to the coordinator's list of agents
(identity.agents_file), as a line "ID KEY". Set the public key of the coordinator in
the configuration of every agent (identity.coordinator_key).`,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := keys.CreateSigningKeyFile(args[0])
			if err != nil {
				return err
			}
			return printLine(cmd.OutOrStdout(), keys.FormatPublic(keys.Public(key)))
		},
	}, &cobra.Command{
		Use: "show FILE", Short: "Print the public key of a private key file",
		Args: ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := keys.ReadSigningKey(args[0])
			if err != nil {
				return err
			}
			return printLine(cmd.OutOrStdout(), keys.FormatPublic(keys.Public(key)))
		},
	})
}

func printLine(w io.Writer, s string) error {
	_, err := fmt.Fprintln(w, s)
	return err
}
