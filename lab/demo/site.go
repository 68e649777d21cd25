package demo

import (
	"log/slog"

	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// site is the broker over which the stations send readings. It is Mosquitto if installed, and the embedded broker
// otherwise.
type site struct {
	url   string
	close func() error
}

func openSite(dir string, log *slog.Logger) (*site, error) {
	if _, err := launch.FindProgram("mosquitto"); err != nil {
		s, err := broker.Start(broker.Options{Logger: log})
		if err != nil {
			return nil, err
		}
		return &site{s.URL(), s.Close}, nil
	}
	const conf = "listener 1883\nallow_anonymous true\nset_tcp_nodelay true\n" +
		"max_queued_messages 0\n" // 0 means no limit; with a limit, Mosquitto drops messages for slow clients
	p, address, err := launch.StartMosquitto([]byte(conf), dir)
	if err != nil {
		return nil, err
	}
	return &site{"tcp://" + address, p.Terminate}, nil
}
