// Package cli is what both programs' command lines have in common: exit
// codes, signals, and the config, key and version commands.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/cmd/internal/keys"
)

// The exit codes besides 0 and config.ExitConfig.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError marks errors of the command line itself.
type usageError struct{ error }

// Main runs a program's command line, with a context that ends on SIGINT or
// SIGTERM, and returns its exit code.
func Main(root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SetArgs(args)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	var bad *config.Error
	switch {
	case errors.As(err, &bad):
		return config.ExitConfig
	case errors.As(err, &usageError{}), !cmd.Runnable():
		fmt.Fprintf(root.ErrOrStderr(), "see '%s --help'\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailure
}

// Args wraps a check of positional arguments, so that its errors count as
// usage errors.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// Usage returns a usage error.
func Usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Loader reads a program's configuration from --config and --set.
type Loader struct {
	Path string
	Set  map[string]string
}

// Flags adds the flags to a command.
func (l *Loader) Flags(cmd *cobra.Command, file string) {
	cmd.Flags().StringVarP(&l.Path, "config", "c", file, "configuration file")
	cmd.Flags().StringToStringVar(&l.Set, "set", nil, "set one key, such as --set broker.url=tcp://broker:1883")
}

// ConfigCommand returns the commands "config check" and "config show". load
// fills and checks a fresh configuration.
func ConfigCommand(file string, load func(l *Loader) (any, error)) *cobra.Command {
	parent := &cobra.Command{Use: "config", Short: "Check or show the configuration"}
	var l Loader
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration and say what is wrong with it, and where", Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := load(&l); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is good\n", l.Path)
			return nil
		},
	}
	show := &cobra.Command{
		Use: "show", Short: "Show the configuration in effect, secrets hidden", Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(&l)
			if err != nil {
				return err
			}
			return config.Write(cmd.OutOrStdout(), cfg)
		},
	}
	for _, c := range []*cobra.Command{check, show} {
		l.Flags(c, file)
		parent.AddCommand(c)
	}
	return parent
}

// KeyCommand returns the commands "key new" and "key show".
func KeyCommand() *cobra.Command {
	parent := &cobra.Command{Use: "key", Short: "Make or show a key"}
	parent.AddCommand(&cobra.Command{
		Use: "new FILE", Short: "Make a private key file and print its public key", Args: Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := keys.Create(args[0])
			if err != nil {
				return err
			}
			return printLine(cmd.OutOrStdout(), keys.Format(keys.Public(key)))
		},
	}, &cobra.Command{
		Use: "show FILE", Short: "Print the public key of a private key file", Args: Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := keys.Private(args[0])
			if err != nil {
				return err
			}
			return printLine(cmd.OutOrStdout(), keys.Format(keys.Public(key)))
		},
	})
	return parent
}

func printLine(w io.Writer, s string) error {
	_, err := fmt.Fprintln(w, s)
	return err
}
