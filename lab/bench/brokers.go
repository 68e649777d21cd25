package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

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
	table, err := acl.New("")
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

// startMosquitto starts it for federations of n agents each.
func startMosquitto(n int, of ...wire.Federation) (*site, error) {
	dir, err := os.MkdirTemp("", "fedmesh-bench-")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	address, err := layOut(dir, n, of)
	if err != nil {
		remove()
		return nil, err
	}
	cmd := exec.Command(find("mosquitto"), "-c", filepath.Join(dir, "mosquitto.conf"))
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		remove()
		return nil, err
	}
	running, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(log); s.Scan(); {
			if strings.HasSuffix(s.Text(), " running") {
				close(running)
			}
		}
		_ = cmd.Wait() // it is killed
	}()
	stop := func() {
		_ = cmd.Process.Kill()
		<-ended
		remove()
	}
	select {
	case <-running:
		return &site{url: "tcp://" + address, stop: stop, meter: meter{cmd.Process.Pid}}, nil
	case <-ended:
		err = errors.New("mosquitto ended")
	case <-time.After(2 * time.Minute): // it takes quadratic time to read the rules of many users
		err = errors.New("mosquitto does not start")
	}
	stop()
	return nil, err
}

// find looks where Debian hides programs from all but root, too.
func find(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return "/usr/sbin/" + name
}

// layOut writes the shipped configuration, with paths in dir and a free port.
func layOut(dir string, n int, of []wire.Federation) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	address = l.Addr().String()
	host, port, _ := net.SplitHostPort(address)
	me, err := user.Current()
	if err != nil {
		return "", err
	}
	var conf bytes.Buffer
	for line := range strings.Lines(string(mosquitto.PlainConf)) {
		if strings.HasPrefix(line, "listener ") {
			line = "listener " + port + " " + host + "\n"
		}
		line = strings.Replace(line, "/etc/mosquitto/", dir+"/", 1)
		conf.WriteString(strings.Replace(line, "/var/lib/mosquitto/", dir+"/", 1))
	}
	fmt.Fprintln(&conf, "user", me.Username) // root would become somebody who cannot read the folder
	rules, users, err := rulesFor(n, of)
	if err != nil {
		return "", err
	}
	for name, text := range map[string][]byte{"mosquitto.conf": conf.Bytes(), "acl": rules, "passwd": users} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	if out, err := exec.Command(find("mosquitto_passwd"),
		"-U", filepath.Join(dir, "passwd")).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mosquitto_passwd: %w: %s", err, out)
	}
	return address, nil
}

// rulesFor returns the acl and the passwords of federations of n agents each.
func rulesFor(n int, of []wire.Federation) (rules, users []byte, err error) {
	table, err := acl.New("")
	if err != nil {
		return nil, nil, err
	}
	var agents []wire.AgentID
	for k := range n {
		agents = append(agents, agentID(k))
	}
	for _, f := range of {
		text, err := table.MosquittoACLFile(f, agents, true)
		if err != nil {
			return nil, nil, err
		}
		rules = append(rules, text...)
		for _, id := range append([]wire.AgentID{wire.CoordinatorID}, agents...) {
			name := string(f) + "-" + string(id)
			users = fmt.Appendf(users, "%s:%s\n", name, (*site)(nil).password(name))
		}
	}
	return rules, users, nil
}
