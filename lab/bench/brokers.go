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

// The federations at the broker: ours with its coordinator's state on a disk, and in memory, and paho's.
const (
	federation = "ours"
	inMemory   = "quick"
	rival      = "bare"
)

// site is a broker with passwords and the access rules that we ship, for all
// federations.
type site struct {
	url   string
	stop  func()
	meter meter
}

// password is made up; the broker checks it anyway.
func (*site) password(user string) string { return "password of " + user }

// starters start a broker as we ship it, for this many agents.
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

// startMosquitto starts it as we ship it, for federations of n agents each.
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
