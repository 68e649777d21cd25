package brokers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RabbitMQ is a RabbitMQ broker with the MQTT plugin that runs as a process. RabbitMQ uses the program installed from
// the Debian package.
type RabbitMQ struct{ process }

// rabbit is the path of RabbitMQ's server script. Tests do not use Debian's wrapper script, because the wrapper changes
// the user.
const rabbit = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// NewRabbitMQ creates a folder for the broker and selects free ports. RabbitMQ starts its name server as a second
// process, which ends together with the broker.
func NewRabbitMQ(t testing.TB) *RabbitMQ {
	t.Helper()
	program, names := FindProgram(t, rabbit), FindProgram(t, "epmd")
	r := &RabbitMQ{newProcess(t)}
	port := func() string {
		_, port, _ := strings.Cut(FreeAddress(t), ":")
		return port
	}
	r.Write(t, "enabled_plugins", []byte("[rabbitmq_mqtt]."))
	r.Write(t, "rabbitmq.conf", fmt.Appendf(nil, "listeners.tcp = none\nmqtt.listeners.tcp.1 = %s\n"+
		"mqtt.allow_anonymous = true\nlog.console = true\n", r.Address))
	at := func(name string) string { return filepath.Join(r.Dir, name) }
	namesPort, nodePort := port(), port()
	r.ready, r.ownGroup = " plugins started.", true
	r.command = func() *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", `"$0" & exec "$1"`, names, program)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.Dir, "ERL_EPMD_ADDRESS=127.0.0.1",
			"ERL_EPMD_PORT=" + namesPort, "RABBITMQ_DIST_PORT=" + nodePort,
			"RABBITMQ_NODENAME=fedmesh" + nodePort + "@localhost", "RABBITMQ_MNESIA_BASE=" + at("mnesia"),
			"RABBITMQ_LOG_BASE=" + at("log"), "RABBITMQ_LOGS=-", "RABBITMQ_CONFIG_FILE=" + at("rabbitmq"),
			"RABBITMQ_ENABLED_PLUGINS_FILE=" + at("enabled_plugins")}
		return cmd
	}
	return r
}

// Memory returns the memory of RabbitMQ's Erlang virtual machine in bytes. The virtual machine is a child of the
// started process.
func (r *RabbitMQ) Memory(t testing.TB, line string) (most int) {
	t.Helper()
	pid := r.Cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range strings.Fields(string(children)) {
		id, err := strconv.Atoi(child)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, memoryOf(t, id, line))
	}
	return most
}
