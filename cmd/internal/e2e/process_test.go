package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit"
)

var programs testkit.Programs

func TestMain(m *testing.M) {
	brokers.ServeIfAsked()
	os.Exit(testkit.Main(m, filepath.Join("..", "..", ".."), &programs))
}
