package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

var programs testkit.Programs

func TestMain(m *testing.M) {
	brokers.ServeIfAsked()
	os.Exit(testkit.Main(m, filepath.Join("..", ".."), &programs))
}
