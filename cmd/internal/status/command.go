package status

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
)

// Command returns a program's command "status"; stateDir is the configured
// folder.
func Command(program string, stateDir func(*cli.Loader) (string, error)) *cobra.Command {
	var l cli.Loader
	var watch, json bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show what the running " + program + " does", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := stateDir(&l)
			if err != nil {
				return err
			}
			if !watch {
				return show(cmd.OutOrStdout(), program, dir, json, false)
			}
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				if err := show(cmd.OutOrStdout(), program, dir, json, true); err != nil {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-tick.C:
				}
			}
		},
	}
	l.Flags(cmd, program)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every second, until Ctrl-C")
	cmd.Flags().BoolVar(&json, "json", false, "as JSON, a line each time")
	return cmd
}

// show asks once and writes what comes.
func show(w io.Writer, program, dir string, json, again bool) error {
	width, terminal := size(w)
	what := strconv.Itoa(width)
	if json {
		what = asJSON
	}
	text, err := fetch(program, dir, what)
	switch {
	case err != nil:
		return err
	case again && !json && terminal:
		text = append([]byte("\x1b[H\x1b[J"), text...) // from the top of an empty screen
	case again && !json:
		text = append(text, '\n')
	}
	_, err = w.Write(text)
	return err
}

// size returns the width to draw for, and whether w is a terminal.
func size(w io.Writer) (width int, terminal bool) {
	const wide = 160 // for files and pipes
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
