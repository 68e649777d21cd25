package launch

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/wire"
)

// mosquittoTimeout is the timeout for the start of Mosquitto, which takes a time of O(n²) to load the rules of n users.
const mosquittoTimeout = 2 * time.Minute

// WriteMosquittoConf writes mosquitto.conf to dir. In the shipped configuration conf it replaces the system directories
// by dir and the listener by address.
func WriteMosquittoConf(conf []byte, dir, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for line := range strings.Lines(string(conf)) {
		if strings.HasPrefix(line, "listener ") {
			line = "listener " + port + " " + host + "\n"
		}
		line = strings.Replace(line, "/etc/mosquitto/", dir+"/", 1)
		text.WriteString(strings.Replace(line, "/var/lib/mosquitto/", dir+"/", 1))
	}
	fmt.Fprintln(&text, "\nuser", me.Username)
	return os.WriteFile(filepath.Join(dir, "mosquitto.conf"), text.Bytes(), 0o600)
}

// WriteMosquittoPasswords writes the file passwd to dir, with the hashes that Mosquitto expects.
func WriteMosquittoPasswords(dir string, passwordByUser map[string]string) error {
	program, err := FindProgram("mosquitto_passwd")
	if err != nil {
		return err
	}
	var plain []byte
	for u, password := range passwordByUser {
		plain = fmt.Appendf(plain, "%s:%s\n", u, password)
	}
	path := filepath.Join(dir, "passwd")
	if err := os.WriteFile(path, plain, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(program, "-U", path).CombinedOutput(); err != nil {
		return fmt.Errorf("hash passwords with mosquitto_passwd: %w: %s", err, out)
	}
	return nil
}

// WriteMosquittoAccess writes the access rules (acl) and the passwords (passwd) for the given agents in each federation
// to dir.
func WriteMosquittoAccess(dir string, agents []wire.AgentID, passwordOf func(user string) string,
	federations ...wire.FederationName) error {
	table, err := acl.NewRuleTable("")
	if err != nil {
		return err
	}
	var rules []byte
	passwords := map[string]string{}
	for _, f := range federations {
		text, err := table.MosquittoACLFile(f, agents, true)
		if err != nil {
			return err
		}
		rules = append(rules, text...)
		for _, id := range append([]wire.AgentID{wire.CoordinatorID}, agents...) {
			user := string(f) + "-" + string(id)
			passwords[user] = passwordOf(user)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "acl"), rules, 0o600); err != nil {
		return err
	}
	return WriteMosquittoPasswords(dir, passwords)
}

// MosquittoCommand returns a command that runs Mosquitto with mosquitto.conf in dir and at most maxOpenFiles open
// files, where 0 means the hard limit of the system. The default limit of 1,024 files is too low for a thousand
// clients.
func MosquittoCommand(program, dir string, maxOpenFiles int) *exec.Cmd {
	limit := "$(ulimit -H -n)"
	if maxOpenFiles > 0 {
		limit = strconv.Itoa(maxOpenFiles)
	}
	return exec.Command("/bin/sh", "-c", `ulimit -n "`+limit+`" && exec "$0" -c "$1"`, program,
		filepath.Join(dir, "mosquitto.conf"))
}

// StartMosquitto starts Mosquitto with the configuration conf and the other files in dir. It returns the address as
// soon as Mosquitto accepts connections.
func StartMosquitto(conf []byte, dir string) (p *Process, address string, err error) {
	program, err := FindProgram("mosquitto")
	if err != nil {
		return nil, "", err
	}
	free, err := FreeAddresses(1)
	if err != nil {
		return nil, "", err
	}
	if err := WriteMosquittoConf(conf, dir, free[0]); err != nil {
		return nil, "", err
	}
	if p, err = Start(MosquittoCommand(program, dir, 0), Options{Name: "mosquitto"}); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), mosquittoTimeout)
	defer cancel()
	if _, _, err := p.AwaitLine(ctx, 0, func(line string) bool {
		return strings.HasSuffix(line, " running")
	}); err != nil {
		p.Kill()
		return nil, "", err
	}
	return p, free[0], nil
}
