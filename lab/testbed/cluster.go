package testbed

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/lab/launch"
)

// nodes is the number of coordinators, and of the NATS servers that keep their state.
const nodes = 3

// members holds the addresses of the coordinators and NATS servers of a testbed with several coordinators.
type members struct {
	metrics []string // addresses of the coordinators' metrics; the first address is also in bed.coordinator
	clients []string // addresses at which the NATS servers accept clients
	routes  []string // addresses over which the NATS servers connect to each other
	// consoles contains the addresses of the coordinators' consoles. The first one is also in bed.console.
	consoles []string
}

// layOutMembers chooses free addresses for the coordinators and the NATS servers.
func (b *bed) layOutMembers() error {
	ports, err := launch.FreeAddresses(4 * nodes)
	if err != nil {
		return err
	}
	b.members = members{metrics: ports[:nodes], clients: ports[nodes : 2*nodes],
		routes: ports[2*nodes : 3*nodes], consoles: ports[3*nodes:]}
	b.coordinator, b.console = b.members.metrics[0], b.members.consoles[0]
	return nil
}

func coordinatorName(i int) string { return fmt.Sprintf("coordinator-%d", i+1) }
func serverName(i int) string      { return fmt.Sprintf("nats-%d", i+1) }

// consoleURLs returns the key urls of the section console, with the consoles of all coordinators.
func (b *bed) consoleURLs() string {
	if !b.Cluster {
		return ""
	}
	var all []string
	for i, address := range b.members.consoles {
		all = append(all, fmt.Sprintf("%s: http://%s/", coordinatorName(i), address))
	}
	return ", urls: {" + strings.Join(all, ", ") + "}"
}

// stateDirs returns the state folders of the coordinators.
func (b *bed) stateDirs() []string {
	if !b.Cluster {
		return []string{b.StateDir(launch.Coordinator)}
	}
	var all []string
	for i := range nodes {
		all = append(all, b.StateDir(coordinatorName(i)))
	}
	return all
}

// writeMembers writes the configuration of each coordinator and NATS server. keys is the list of agents, which every
// coordinator receives as a file.
func (b *bed) writeMembers(keys string) error {
	for i := range nodes {
		name := coordinatorName(i)
		text := b.coordinatorConfig(name, b.members.metrics[i], b.members.consoles[i]) +
			fmt.Sprintf("cluster: {nats: [\"nats://%s\"], name: %s}\n",
				strings.Join(b.members.clients, `", "nats://`), name)
		server := fmt.Sprintf("server_name: %s\nlisten: %s\njetstream {store_dir: %q}\n"+
			"cluster {name: testbed, listen: %s, routes: [nats://%s]}\n", serverName(i), b.members.clients[i],
			b.Path(serverName(i)), b.members.routes[i], strings.Join(b.members.routes, ", nats://"))
		err := firstOf(b.Put(name+".yaml", []byte(text)), b.Put(name+".keys", []byte(keys)),
			b.Put(serverName(i)+".conf", []byte(server)))
		if err != nil {
			return err
		}
	}
	return nil
}

// startMembers starts the NATS servers, then the coordinators. startMembers returns when a coordinator has become the
// leader.
func (b *bed) startMembers(ctx context.Context) error {
	for i := range nodes {
		if err := b.keepUp(serverName(i), func() *exec.Cmd {
			return exec.Command(b.tools.nats, "-c", b.Path(serverName(i)+".conf"))
		}); err != nil {
			return err
		}
	}
	for _, address := range b.members.clients {
		if err := b.await(ctx, address, func() bool { return launch.Listens(address) }); err != nil {
			return err
		}
	}
	for i := range nodes {
		name := coordinatorName(i)
		if err := b.keepUp(name, func() *exec.Cmd { return b.daemon("coordinator", name) }); err != nil {
			return err
		}
	}
	return b.await(ctx, "one of the coordinators", func() bool { return b.leader() >= 0 })
}

// leader returns the index of the coordinator that is the leader, or −1 if there is none.
func (b *bed) leader() int {
	return slices.IndexFunc(b.members.metrics, func(address string) bool {
		return launch.Answers("http://" + address + "/-/ready")
	})
}

// leading returns the name of the leading coordinator, or the name of the first coordinator if none leads.
func (b *bed) leading() string {
	if !b.Cluster {
		return "coordinator"
	}
	return coordinatorName(max(0, b.leader()))
}

// keepUp runs a program and restarts it whenever it ends, like a service manager, because users may kill it as an
// experiment.
func (b *bed) keepUp(name string, command func() *exec.Cmd) error {
	stop, err := launch.KeepRunning(time.Second, func() (*launch.Process, error) {
		cmd := command()
		cmd.Dir = b.Folder.Dir
		return launch.Start(cmd, b.options(name))
	}, warn)
	if err == nil {
		b.kept = append(b.kept, stop)
	}
	return err
}

// tellMembers returns a text that describes the coordinators and how to kill the leader as an experiment.
func (b *bed) tellMembers() string {
	if !b.Cluster {
		return ""
	}
	return fmt.Sprintf(`
  coordinators  %d, with their state in %d NATS servers; %s is the leader
  failover      pkill -9 -f %s/%[3]s.yaml kills the leader; another coordinator takes over within 15 s
`, nodes, nodes, b.leading(), b.Folder.Dir)
}
