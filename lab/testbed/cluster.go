package testbed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
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
	ports, err := freePorts(3 * nodes)
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
		return []string{b.path("state")}
	}
	var all []string
	for i := range nodes {
		all = append(all, b.path("state-"+coordinatorName(i)))
	}
	return all
}

// writeMembers writes their configurations, those of the coordinators after that of one that is alone. keys is the list
// of agents, of which each has a copy.
func (b *bed) writeMembers(keys string) error {
	alone := string(b.coordinatorConfig())
	var urls []string
	for _, address := range b.members.clients {
		urls = append(urls, fmt.Sprintf("%q", "nats://"+address))
	}
	for i := range nodes {
		name := coordinatorName(i)
		text := strings.NewReplacer("state_dir: "+b.path("state")+"\n", "state_dir: "+b.stateDirs()[i]+"\n",
			b.path("agents.keys"), b.path(name+".keys"),
			"listen: "+b.coordinator, "listen: "+b.members.metrics[i]).Replace(alone) +
			fmt.Sprintf("cluster: {nats: [%s], name: %s}\n", strings.Join(urls, ", "), name)
		server := fmt.Sprintf("server_name: %s\nlisten: %s\njetstream {store_dir: %q}\n"+
			"cluster {name: testbed, listen: %s, routes: [nats://%s]}\n", serverName(i), b.members.clients[i],
			b.path(serverName(i)), b.members.routes[i], strings.Join(b.members.routes, ", nats://"))
		err := firstOf(b.put(name+".yaml", []byte(text)), b.put(name+".keys", []byte(keys)),
			b.put(serverName(i)+".conf", []byte(server)))
		if err != nil {
			return err
		}
	}
	return nil
}

// startMembers starts the servers, and then the coordinators, and returns when one of these leads.
func (b *bed) startMembers(ctx context.Context) error {
	for i := range nodes {
		if err := b.keepUp(serverName(i), b.tools.nats, "-c", b.path(serverName(i)+".conf")); err != nil {
			return err
		}
	}
	for _, address := range b.members.clients {
		if err := b.await(ctx, address, func() bool {
			conn, err := net.DialTimeout("tcp", address, time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		}); err != nil {
			return err
		}
	}
	for i := range nodes {
		if err := b.keepUp(coordinatorName(i), filepath.Join(b.Bin, "coordinator"), "run", "--config",
			b.path(coordinatorName(i)+".yaml")); err != nil {
			return err
		}
	}
	return b.await(ctx, "one of the coordinators", func() bool { return b.leader() >= 0 })
}

// leader is the coordinator that leads; -1 if none does.
func (b *bed) leader() int {
	for i, address := range b.members.metrics {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return i
		}
	}
	return -1
}

// leading is the name of the coordinator that leads, or the first one.
func (b *bed) leading() string {
	if !b.Cluster {
		return "coordinator"
	}
	return coordinatorName(max(0, b.leader()))
}

// keepUp starts a program, and again whenever it has ended, as a service manager does: somebody may kill it to see.
func (b *bed) keepUp(name, program string, args ...string) error {
	ended := make(chan string, 1)
	p, err := b.runTo(ended, name, nil, program, args...)
	if err != nil {
		return err
	}
	enough, gone := make(chan struct{}), make(chan struct{})
	b.kept = append(b.kept, func() {
		close(enough)
		<-gone
	})
	go func() {
		defer close(gone)
		for {
			select {
			case <-enough:
				p.stop()
				return
			case <-ended:
			}
			select {
			case <-enough:
				return
			case <-time.After(time.Second):
			}
			again, err := b.runTo(ended, name, nil, program, args...)
			if err != nil {
				fmt.Fprintln(os.Stderr, "fedlab up:", err)
				return
			}
			p = again
		}
	}()
	return nil
}

// tellMembers says who takes turns, and how to see it.
func (b *bed) tellMembers() string {
	if !b.Cluster {
		return ""
	}
	return fmt.Sprintf(`
  coordinators  %d, which keep their state in %d servers of NATS; %s leads
  kill it       pkill -9 -f %s/%[3]s.yaml: another one leads 15 s later
`, nodes, nodes, b.leading(), b.Dir)
}
