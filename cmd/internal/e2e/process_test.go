package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit"
)

var programs testkit.Programs

// TestMain builds the programs once.
func TestMain(m *testing.M) {
	brokers.ServeIfAsked()
	code := 1
	defer func() { os.Exit(code) }()
	var err error
	var remove func()
	if programs, remove, err = testkit.Build(filepath.Join("..", "..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer remove()
	code = m.Run()
}
