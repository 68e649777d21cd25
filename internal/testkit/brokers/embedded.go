package brokers

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
)

// Embedded is the embedded broker in a process of its own. It has our rules,
// keeps what is retained in its folder, and lets in whoever has the password
// that Mosquitto.AddUsers gives.
type Embedded struct{ process }

// serveEnv tells a test's program that it is to be a broker.
const serveEnv = "FEDMESH_TEST_BROKER"

// embeddedOptions is what the process is told.
type embeddedOptions struct {
	Listen, Dir, OpenPrefix string
	MaxConns                int
}

// NewEmbedded lays out the process. The package of the test must call
// ServeIfAsked in its TestMain. Users whose names begin with openPrefix may do
// everything. With a memory limit, in bytes, Go's GOMEMLIMIT is that.
func NewEmbedded(t testing.TB, openPrefix string, maxConns, memoryLimit int) *Embedded {
	t.Helper()
	e := &Embedded{newProcess(t)}
	options, err := json.Marshal(embeddedOptions{e.Address, filepath.Join(e.Dir, "retained"), openPrefix, maxConns})
	if err != nil {
		t.Fatal(err)
	}
	e.command = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Stderr = os.Stderr
		if _, err := cmd.StdinPipe(); err != nil { // which ends with this process
			t.Error(err)
		}
		cmd.Env = append(os.Environ(), serveEnv+"="+string(options), "GORACE=halt_on_error=1")
		if memoryLimit > 0 {
			cmd.Env = append(cmd.Env, fmt.Sprint("GOMEMLIMIT=", memoryLimit))
		}
		return cmd
	}
	return e
}

// ServeIfAsked does not return in a process that is to be a broker.
func ServeIfAsked() {
	asked := os.Getenv(serveEnv)
	if asked == "" {
		return
	}
	if err := serve(asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

func serve(asked string) error {
	var o embeddedOptions
	if err := json.Unmarshal([]byte(asked), &o); err != nil {
		return err
	}
	rules, err := acl.NewRuleTable("")
	if err != nil {
		return err
	}
	if _, err := broker.Start(broker.Options{
		Listen: o.Listen, RetainedDir: o.Dir, MaxConns: o.MaxConns,
		Authenticate: func(_, user, password string) bool { return password == "password of "+user },
		Allow: func(user, topic string, toWrite bool) bool {
			return strings.HasPrefix(user, o.OpenPrefix) || rules.Allowed(user, topic, toWrite)
		},
		Quota: func(user string) int {
			if strings.HasPrefix(user, o.OpenPrefix) {
				return math.MaxInt
			}
			return rules.RetainedBytesQuota(user)
		},
		Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		return err
	}
	fmt.Println("the embedded broker is running")
	_, err = io.Copy(io.Discard, os.Stdin) // until it is killed, or nobody is left to do it
	return err
}
