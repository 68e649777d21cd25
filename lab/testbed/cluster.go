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

// nodes is how many coordinators take turns, and how many servers of NATS keep their state.
const nodes = 3

// members are the coordinators and the servers of NATS, where a testbed has several.
type members struct {
	metrics []string // addresses of the coordinators' metrics; the first one is bed.coordinator
	clients []string // of the servers, for clients
	routes  []string // of the servers, for each other
}

// layOutMembers finds their addresses.
func (b *bed) layOutMembers() error {
	ports, err := launch.FreeAddresses(3 * nodes)
	if err != nil {
		return err
	}
	b.members = members{metrics: ports[:nodes], clients: ports[nodes : 2*nodes], routes: ports[2*nodes:]}
	b.coordinator = b.members.metrics[0]
	return nil
}

func coordinatorName(i int) string { return fmt.Sprintf("coordinator-%d", i+1) }
func serverName(i int) string      { return fmt.Sprintf("nats-%d", i+1) }

// stateDirs are the coordinators' state folders.
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

// writeMembers writes their configurations. keys is the list of agents, of which each coordinator has a copy.
func (b *bed) writeMembers(keys string) error {
	for i := range nodes {
		name := coordinatorName(i)
		text := b.coordinatorConfig(name, b.members.metrics[i]) +
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

// startMembers starts the servers, and then the coordinators, and returns when one of these leads.
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

// leader is the coordinator that leads; -1 if none does.
func (b *bed) leader() int {
	return slices.IndexFunc(b.members.metrics, func(address string) bool {
		return launch.Answers("http://" + address + "/-/ready")
	})
}

// leading is the name of the coordinator that leads, or the first one.
func (b *bed) leading() string {
	if !b.Cluster {
		return "coordinator"
	}
	return coordinatorName(max(0, b.leader()))
}

// keepUp starts a program, and again whenever it has ended, as a service manager does: somebody may kill it to see.
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

// tellMembers says who takes turns, and how to see it.
func (b *bed) tellMembers() string {
	if !b.Cluster {
		return ""
	}
	return fmt.Sprintf(`
  coordinators  %d, which keep their state in %d servers of NATS; %s leads
  kill it       pkill -9 -f %s/%[3]s.yaml: another one leads 15 s later
`, nodes, nodes, b.leading(), b.Folder.Dir)
}
