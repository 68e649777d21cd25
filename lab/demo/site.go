package demo

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// site is the broker over which the stations are heard: Mosquitto where it is installed, else the embedded one.
type site struct {
	url   string
	close func() error
}

func openSite(dir string, log *slog.Logger) (*site, error) {
	for _, name := range []string{"mosquitto", "/usr/sbin/mosquitto"} { // where Debian keeps it
		if program, err := exec.LookPath(name); err == nil {
			return openMosquitto(program, dir)
		}
	}
	s, err := broker.Start(broker.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	return &site{s.URL(), s.Close}, nil
}

func openMosquitto(program, dir string) (*site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a port that is free
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	path := filepath.Join(dir, "mosquitto.conf")
	conf := "listener " + port + " " + host + "\nallow_anonymous true\nset_tcp_nodelay true\n" +
		"max_queued_messages 0\n" // else it drops what a client does not take at once
	if err := errors.Join(l.Close(), os.WriteFile(path, []byte(conf), 0o600)); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-c", path)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &site{"tcp://" + net.JoinHostPort(host, port), func() error {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it was interrupted
		return nil
	}}, nil
}
