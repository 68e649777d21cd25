package replica

import (
	"os"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
)

func TestMain(m *testing.M) {
	hosts.UseMemoryTempDir()
	os.Exit(m.Run())
}
