//go:build chaos

package chaos

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

var (
	seed  = flag.Uint64("seed", 1, "of all moments and choices")
	soak  = flag.Duration("soak", 5*time.Minute, "length of the soak")
	table = flag.String("table", "", "Markdown file in which the table of results is replaced; empty = only print it")
)

var programs testkit.Programs

// TestMain builds the programs once, and prints the table at the end.
func TestMain(m *testing.M) {
	brokers.ServeIfAsked()
	os.Exit(work(m))
}

func work(m *testing.M) int {
	code := testkit.Main(m, filepath.Join("..", ".."), &programs)
	fmt.Print(results.markdown())
	if code == 0 && len(results.rows) == 0 {
		fmt.Fprintln(os.Stderr, "no fault was tried to its end: ONLY names none of docs/RELIABILITY.md, or the fault "+
			"takes root")
		return 1
	}
	if code == 0 && *table != "" {
		if err := results.write(*table); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
