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

// Embedded is the embedded broker in a separate process. It applies the access rules of package acl and keeps retained
// messages in its folder. Embedded accepts the passwords that [Mosquitto.AddUsers] sets.
type Embedded struct{ process }

// serveEnv names the environment variable that makes a test binary run as a broker process instead of running tests.
const serveEnv = "FEDMESH_TEST_BROKER"

// embeddedOptions contains the options that the test passes to the broker process.
type embeddedOptions struct {
	Listen, Dir, OpenPrefix string
	MaxConns                int
}

// NewEmbedded prepares the broker process. The TestMain of the calling package must call ServeIfAsked. Users whose
// names begin with openPrefix may access all topics. memoryLimit is the process's GOMEMLIMIT in bytes; 0 means no
// limit.
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
		// The pipe closes when the test process ends, so that the broker also ends.
		if _, err := cmd.StdinPipe(); err != nil {
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

// ServeIfAsked runs the embedded broker and does not return if serveEnv is set in the environment. Otherwise it returns
// immediately.
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
	_, err = io.Copy(io.Discard, os.Stdin) // Block until the parent process ends and closes the pipe.
	return err
}
