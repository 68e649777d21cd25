package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// federation is the testbed's name.
const federation = "testbed"

// bed is a testbed: a folder and the processes that work in it.
type bed struct {
	Options
	temporary                       bool   // the folder goes with the testbed
	broker, coordinator, prometheus string // host:port
	processes                       []*process
	ended                           chan string // the name of a process that ended by itself
	stopped, grown                  chan struct{}
}

// stretch is by how much everything that each agent does goes slower than among a hundred: one machine runs them all.
func (b *bed) stretch() int { return max(1, b.Agents/100) }

func (b *bed) path(name string) string { return filepath.Join(b.Dir, name) }

// agentID names an agent.
func agentID(i int) string { return fmt.Sprintf("agent-%03d", i) }

// layOut makes the folder and all files.
func layOut(o Options) (*bed, error) {
	b := &bed{Options: o, ended: make(chan string, 1), stopped: make(chan struct{}), grown: make(chan struct{})}
	var err error
	if b.Bin, err = filepath.Abs(b.Bin); err != nil {
		return nil, err
	}
	if b.Dir == "" {
		b.temporary = true
		b.Dir, err = os.MkdirTemp("", "fedmesh-testbed-")
	} else if b.Dir, err = filepath.Abs(b.Dir); err == nil {
		if err = os.Mkdir(b.Dir, 0o700); err != nil {
			err = fmt.Errorf("%w: name a folder that does not exist yet", err)
		}
	}
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err == nil {
		b.broker, b.coordinator, b.prometheus = ports[0], ports[1], ports[2]
		err = b.write()
	}
	if err != nil {
		b.remove()
		return nil, err
	}
	return b, nil
}

// freePorts returns loopback addresses where nobody listens.
func freePorts(n int) ([]string, error) {
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all of them stay open until the last is found
		all = append(all, l.Addr().String())
	}
	return all, nil
}

func (b *bed) remove() {
	if b.temporary {
		_ = os.RemoveAll(b.Dir) // in the system's folder for such things
	}
}

// program finds one of Debian's programs; daemons lie where only root looks.
func program(name, debian string) (string, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not here: install Debian's package %s", name, debian)
}

// ours runs one of our programs to its end and returns what it prints.
func (b *bed) ours(name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(b.Bin, name), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// start starts everything, each when the one before answers.
func (b *bed) start(ctx context.Context) error {
	mosquitto, err1 := program("mosquitto", "mosquitto")
	prometheus, err2 := program("prometheus", "prometheus")
	if err1 != nil || err2 != nil {
		return fmt.Errorf("%w", firstOf(err1, err2))
	}
	// A login's 1,024 open files are too few for a thousand clients.
	const manyFiles = `ulimit -n "$(ulimit -H -n)"; exec "$0" "$@"`
	err := b.run("mosquitto", "/bin/sh", "-c", manyFiles, mosquitto, "-c", b.path("mosquitto.conf"))
	if err == nil {
		err = awaitPort(ctx, b.broker)
	}
	if err == nil {
		err = b.run("coordinator", filepath.Join(b.Bin, "coordinator"), "run", "--config", b.path("coordinator.yaml"))
	}
	if err == nil {
		err = awaitURL(ctx, "http://"+b.coordinator+"/-/ready")
	}
	if err == nil {
		err = b.run("prometheus", prometheus, "--config.file="+b.path("prometheus/prometheus.yml"),
			"--web.listen-address="+b.prometheus,
			"--storage.tsdb.path="+b.path("prometheus/data"), "--log.level=warn")
	}
	for i := 0; i < b.Agents && err == nil && ctx.Err() == nil; i++ {
		err = b.run(agentID(i), filepath.Join(b.Bin, "agentd"), "run", "--config", b.path(agentID(i)+".yaml"))
	}
	if err == nil {
		err = awaitURL(ctx, "http://"+b.prometheus+"/-/ready")
	}
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// patience is how long a process has until it answers.
const patience = time.Minute

func awaitPort(ctx context.Context, address string) error {
	return await(ctx, address, func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func awaitURL(ctx context.Context, url string) error {
	return await(ctx, url, func() bool {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
}

func await(ctx context.Context, what string, ok func() bool) error {
	late := time.After(patience)
	for !ok() {
		select {
		case <-ctx.Done():
			return nil
		case <-late:
			return fmt.Errorf("%s does not answer after %s", what, patience)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// tell says what runs, and how to look at it.
func (b *bed) tell(w io.Writer) {
	scheme := "passwords"
	if b.TLS {
		scheme = "certificates"
	}
	fmt.Fprintf(w, `the testbed runs: %d agents and a coordinator, at Mosquitto on %s (with %s)

  Prometheus    http://%s
  coordinator   http://%s/metrics, and its list of agents /sd/agents
  look          %s
                %s
  files, logs   %s

Ctrl-C stops everything.
`, b.Agents, b.broker, scheme, b.prometheus, b.coordinator,
		filepath.Join(b.Bin, "coordinator")+" status --watch --config "+b.path("coordinator.yaml"),
		filepath.Join(b.Bin, "agentd")+" status --watch --config "+b.path(agentID(0)+".yaml"), b.Dir)
}
