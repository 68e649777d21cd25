package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

const federation = "testbed"

// bed is a running testbed: its folder and its processes.
type bed struct {
	Options
	*launch.Folder
	temporary bool // true if the folder is removed when the testbed stops
	// addresses (host:port)
	broker, coordinator, prometheus, grafana, console string
	consoleToken                                      string // token with which the console may be operated
	embedded                                          *broker.Server
	members                                           members // addresses of several coordinators
	// all processes; its context ends when the first one ends
	running          *launch.Group
	kept             []func() // functions that stop the programs started with keepUp
	services, agents []*launch.Process
	stopped, grown   chan struct{}
}

// stretch returns the factor by which agents slow down their periodic work. The factor grows with the number of agents,
// because all agents share one machine.
func (b *bed) stretch() int { return max(1, b.Agents/100) }

func agentID(i int) string { return fmt.Sprintf("agent-%03d", i) }

// layOut creates the folder of the testbed and writes all keys and configuration files.
func layOut(ctx context.Context, o Options) (*bed, error) {
	b := &bed{Options: o, running: launch.NewGroup(ctx), stopped: make(chan struct{}), grown: make(chan struct{})}
	var err error
	if b.Bin, err = programs(b.Bin); err != nil {
		return nil, err
	}
	if b.tools == nil {
		b.tools = findTools()
	}
	if b.TLS {
		b.needs = append(b.needs, "mosquitto")
	}
	if b.Cluster {
		b.needs = append(b.needs, "nats-server")
	}
	for _, name := range b.needs {
		if map[string]string{"mosquitto": b.tools.mosquitto, "prometheus": b.tools.prometheus,
			"nats-server": b.tools.nats}[name] == "" {
			return nil, launch.MissingProgram(name)
		}
	}
	dir := o.Dir
	if dir == "" {
		b.temporary = true
		dir, err = os.MkdirTemp("", "fedmesh-testbed-")
	} else if dir, err = filepath.Abs(dir); err == nil {
		if err = os.Mkdir(dir, 0o700); err != nil {
			err = fmt.Errorf("%w: want a folder that does not exist yet", err)
		}
	}
	if err != nil {
		return nil, err
	}
	if b.Folder, err = launch.NewFolder(dir, federation); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	ports, err := launch.FreeAddresses(5)
	if err == nil {
		b.broker, b.coordinator, b.prometheus, b.grafana, b.console = ports[0], ports[1], ports[2], ports[3], ports[4]
		if b.Cluster {
			err = b.layOutMembers()
		}
		err = firstOf(err, b.write())
	}
	if err != nil {
		b.remove()
		return nil, err
	}
	return b, nil
}

func (b *bed) remove() {
	if b.temporary {
		_ = os.RemoveAll(b.Folder.Dir)
	}
}

// ours runs one of the project's programs until it ends and returns its standard output.
func (b *bed) ours(name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(b.Bin, name), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// start starts all processes in order. It waits until each process is ready before it starts the next one.
func (b *bed) start(ctx context.Context) error {
	err := b.startBroker(ctx)
	switch {
	case err != nil:
	case b.Cluster:
		err = b.startMembers(ctx)
	default:
		if err = b.service("coordinator", b.daemon("coordinator", "coordinator")); err == nil {
			err = b.awaitURL(ctx, "http://"+b.coordinator+"/-/ready")
		}
	}
	if err == nil && b.tools.prometheus != "" {
		err = b.service("prometheus", exec.Command(b.tools.prometheus,
			"--config.file="+b.Path("prometheus/prometheus.yml"), "--web.listen-address="+b.prometheus,
			"--storage.tsdb.path="+b.Path("prometheus/data"), "--log.level=warn"))
	}
	if err == nil && b.tools.grafana != nil && b.tools.prometheus != "" {
		err = b.startGrafana()
	}
	for i := 0; i < b.Agents && err == nil && ctx.Err() == nil; i++ {
		var p *launch.Process
		if p, err = b.running.Start(b.daemon("agentd", agentID(i)), b.options(agentID(i))); err == nil {
			b.agents = append(b.agents, p)
		}
	}
	if err == nil && b.tools.prometheus != "" {
		err = b.awaitURL(ctx, "http://"+b.prometheus+"/-/ready")
	}
	return err
}

// daemon returns the command that runs a program of the project with the configuration file of the given name.
func (b *bed) daemon(program, name string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(b.Bin, program), "run", "--config", b.Path(name+".yaml"))
	cmd.Dir = b.Folder.Dir
	return cmd
}

// options returns the launch options of a process: a log file and a separate process group. The group keeps Ctrl-C from
// the process, because stop ends the processes in order.
func (b *bed) options(name string) launch.Options {
	return launch.Options{Name: name, LogFile: b.Path(name + ".log"), OwnGroup: true}
}

// service starts a program that runs until all agents have stopped.
func (b *bed) service(name string, cmd *exec.Cmd) error {
	cmd.Dir = b.Folder.Dir
	p, err := b.running.Start(cmd, b.options(name))
	if err == nil {
		b.services = append(b.services, p)
	}
	return err
}

// startBroker starts Mosquitto. If it is not installed, startBroker starts an embedded broker with the same passwords.
func (b *bed) startBroker(ctx context.Context) (err error) {
	if b.tools.mosquitto == "" {
		b.embedded, err = broker.Start(broker.Options{Listen: b.broker, MaxConns: 4 * b.Agents,
			Authenticate: b.Authenticate})
		return err
	}
	if err := b.service("mosquitto", launch.MosquittoCommand(b.tools.mosquitto, b.Folder.Dir, 0)); err != nil {
		return err
	}
	return b.await(ctx, b.broker, func() bool { return launch.Listens(b.broker) })
}

// stop stops all processes, agents first, so that they can disconnect from a running broker.
func (b *bed) stop() {
	var all sync.WaitGroup
	for _, p := range b.agents {
		all.Go(func() { warn(p.Terminate()) })
	}
	all.Wait()
	close(b.stopped)
	for _, end := range slices.Backward(b.kept) {
		end()
	}
	<-b.grown
	for _, p := range slices.Backward(b.services) {
		warn(p.Terminate())
	}
	b.running.Stop()
	if b.embedded != nil {
		_ = b.embedded.Close() // All clients have already disconnected.
	}
}

// warn prints an error that does not stop the testbed.
func warn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fedlab up:", err)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// patience is the maximum time until a started process must be ready.
const patience = time.Minute

func (b *bed) awaitURL(ctx context.Context, url string) error {
	return b.await(ctx, url, func() bool { return launch.Answers(url) })
}

// await waits until ok returns true or the caller stops the testbed. It returns an error if patience passes or a
// process ends first.
func (b *bed) await(ctx context.Context, what string, ok func() bool) error {
	err := launch.Until(b.running.Context(), patience, ok)
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case b.running.Context().Err() != nil:
		return err // A process has ended, and err is its error.
	}
	return fmt.Errorf("%s did not respond within %s", what, patience)
}

// tell prints which processes run and how to inspect them.
func (b *bed) tell(w io.Writer) {
	kind, scheme := "Mosquitto", "passwords"
	if b.embedded != nil {
		kind = "an embedded broker (Mosquitto is not installed)"
	}
	if b.TLS {
		scheme = "certificates"
	}
	prometheus, grafana := "http://"+b.prometheus, "http://"+b.grafana
	if b.tools.prometheus == "" {
		prometheus = "not installed (Debian's package prometheus)"
		grafana = "requires Prometheus"
	} else if b.tools.grafana == nil {
		grafana = "not installed; its dashboards are in packaging/monitoring"
	}
	end := "Ctrl-C stops everything."
	if b.For > 0 {
		end = fmt.Sprintf("It stops after %s or on Ctrl-C.", b.For)
	}
	fmt.Fprintf(w, `the federation is running: %d agents and a coordinator, connected to %s on %s (with %s)

  console       http://%s/ (token to operate: %s)
  Prometheus    %s
  Grafana       %s
  coordinator   http://%s/metrics; list of agents: /sd/agents
  status        %s
                %s
  files, logs   %s
%s
%s
`, b.Agents, kind, b.broker, scheme, b.console, b.consoleToken, prometheus, grafana, b.coordinator,
		filepath.Join(b.Bin, "coordinator")+" status --watch --config "+b.Path(b.leading()+".yaml"),
		filepath.Join(b.Bin, "agentd")+" status --watch --config "+b.Path(agentID(0)+".yaml"), b.Folder.Dir,
		b.tellMembers(), end)
}
