//go:build unix

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/config"
)

// TestJournal checks that errors are written to journald one per line, with their priority and their location in the
// file. A program that inherited the variable JOURNAL_STREAM but whose output is not connected to journald must write
// for a terminal.
func TestJournal(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("nmae: b\ncolunms: [a]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := bad+`:1:1: unknown key "nmae"; did you mean "name"?`+"\n",
		bad+`:2:1: unknown key "colunms"; did you mean "columns"?`+"\n"
	for _, tt := range []struct {
		here bool
		want string
	}{
		{true, "<3>" + first + "<3>" + second},
		{false, "toy: " + first + "  1 | nmae: b\n    | ^\n" + second + "  2 | colunms: [a]\n    | ^\n"},
	} {
		stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer stderr.Close()
		var s syscall.Stat_t
		if err := syscall.Fstat(int(stderr.Fd()), &s); err != nil {
			t.Fatal(err)
		}
		if !tt.here {
			s.Ino++
		}
		t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", s.Dev, s.Ino))
		root := &cobra.Command{Use: "toy"}
		root.AddCommand(ConfigCommand("toy",
			func(l *ConfigLoader) (any, error) { return nil, config.Load(new(toy), config.Source{Path: l.Path}) }, nil))
		root.SetErr(stderr)
		code := runRootCommand(t.Context(), root, []string{"config", "check", "--config", bad})
		if got, err := os.ReadFile(stderr.Name()); err != nil || code != config.ExitBadConfig ||
			string(got) != tt.want {
			t.Errorf("exit %d, and\n%swant\n%s", code, got, tt.want)
		}
	}
}
