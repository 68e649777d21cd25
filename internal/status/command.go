package status

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/internal/cli"
)

// Command returns a program's command "status". stateDirs returns the configured state folders, one per federation of
// an agent.
func Command(program string, stateDirs func(*cli.ConfigLoader) ([]string, error)) *cobra.Command {
	var l cli.ConfigLoader
	var watch, json bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the status of the running " + program,
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dirs, err := stateDirs(&l)
			if err != nil {
				return err
			}
			ask := func(width int) (all []byte, err error) {
				for i, dir := range dirs {
					text, err := fetchStatus(cmd.Context(), program, dir, json, width, fetchTimeout)
					if err != nil {
						return nil, err
					}
					if i > 0 && !json {
						all = append(all, '\n')
					}
					all = append(all, text...)
				}
				return all, nil
			}
			if watch {
				return watchStatus(cmd, ask, json)
			}
			text, err := ask(OutputWidth(cmd.OutOrStdout()))
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "refresh the status every second, until Ctrl-C")
	cmd.Flags().BoolVar(&json, "json", false, "print JSON, one object per line")
	return cmd
}

// watchStatus requests and writes the status every second. watchStatus returns an error if the first request fails. It
// prints later errors once and continues, because the program may be restarting.
func watchStatus(cmd *cobra.Command, ask func(width int) ([]byte, error), json bool) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for answered, silent := false, false; ; {
		width, terminal := terminalWidth(cmd.OutOrStdout())
		text, err := ask(width)
		switch {
		case err != nil && !answered:
			return err
		case err != nil && !silent:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s; retrying every second\n", err)
		case err == nil && !json && terminal:
			text = append([]byte("\x1b[H\x1b[J"), text...) // clear the screen and start at the top
		case err == nil && !json:
			text = append(text, '\n')
		}
		if answered, silent = true, err != nil; !silent {
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return err
			}
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// OutputWidth returns the output width in columns.
func OutputWidth(w io.Writer) int {
	width, _ := terminalWidth(w)
	return width
}

// terminalWidth returns the output width in columns, and whether w is a terminal.
func terminalWidth(w io.Writer) (width int, terminal bool) {
	const wide = 160 // default width for files and pipes
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return wide, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width == 0 {
		return 80, true
	}
	return width, true
}
