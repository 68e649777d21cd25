package bench

import (
	"errors"
	"os"

	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/wire"
)

// Names of the three federations that share one broker: fedmesh with the coordinator's state on disk, fedmesh with the
// state in memory, and the plain paho clients.
const (
	federation = "ours"
	inMemory   = "quick"
	rival      = "bare"
)

// site is a running broker that has passwords and the shipped access rules for all federations of the benchmark.
type site struct {
	url   string
	stop  func()
	meter meter
}

// password returns the MQTT password of a user in the benchmark.
func (*site) password(user string) string { return "password of " + user }

// starters maps the name of a broker to the function that starts this broker for n agents per federation.
var starters = map[string]func(agents int) (*site, error){
	"mosquitto": func(n int) (*site, error) { return startMosquitto(n, federation, inMemory, rival) },
	"embedded":  startEmbedded,
}

func startEmbedded(n int) (*site, error) {
	table, err := acl.NewRuleTable("")
	if err != nil {
		return nil, err
	}
	var b site
	server, err := broker.Start(broker.Options{
		MaxConns: 3*n + 3, Allow: table.Allowed,
		Authenticate: func(_, user, password string) bool { return password == b.password(user) },
	})
	if err != nil {
		return nil, err
	}
	b.url, b.stop = server.URL(), func() { _ = server.Close() }
	return &b, nil
}

// startMosquitto starts Mosquitto with the shipped configuration. It creates users and access rules for n agents in
// each of the given federations.
func startMosquitto(n int, of ...wire.FederationName) (*site, error) {
	dir, err := os.MkdirTemp("", "fedmesh-bench-")
	if err != nil {
		return nil, err
	}
	var agents []wire.AgentID
	for k := range n {
		agents = append(agents, agentID(k))
	}
	err = launch.WriteMosquittoAccess(dir, agents, (*site)(nil).password, of...)
	var p *launch.Process
	var address string
	if err == nil {
		p, address, err = launch.StartMosquitto(mosquitto.PlainConf, dir)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &site{url: "tcp://" + address, meter: meter{p.Cmd.Process.Pid}, stop: func() {
		p.Kill()
		_ = os.RemoveAll(dir)
	}}, nil
}
