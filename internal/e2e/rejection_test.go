package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// awaitStatus waits until the output of a device's status command contains a text.
func (f *federation) awaitStatus(t *testing.T, id, want string, more ...string) {
	t.Helper()
	testkit.Until(t, "the status of "+id+" with "+want, func() bool {
		code, text, _ := programs.Run(t, "agentd", append([]string{"status", "--config", f.Path(id + ".yaml")},
			more...)...)
		return code == 0 && strings.Contains(strings.Join(strings.Fields(text), " "), want)
	})
}

// TestRejected runs three devices whose messages the coordinator ignores: a device that is not in the list of agents, a
// device that lost its state folder, and a clone of a device. Each device must report the problem in its status. The
// coordinator accepts the first device after a reload, and the second device after a reset.
func TestRejected(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgent(t, "one", plane(60)) + f.AddAgent(t, "two", plane(60))
	stranger := f.AddAgent(t, "stranger", plane(60))
	f.lead(t, list, `{participants: 1, quorum: 1, pause: 50ms, deadline: 20s, gather: {minimum: 1, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	one := f.Daemon(t, "agentd", "one")
	lead.Await(t, "agent available agent=one")

	unlisted := f.Daemon(t, "agentd", "stranger")
	f.awaitStatus(t, "stranger", "ignores this device's messages: the device's id is not in the list of agents")
	f.Write(t, "agents.keys", list+stranger)
	if err := lead.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	lead.Await(t, "agent available agent=stranger")
	unlisted.Await(t, "coordinator accepts this device's messages again")

	says := func(text string, times int) {
		testkit.Until(t, text, func() bool { return strings.Count(lead.Log(), text) >= times })
	}
	for n := range 2 {
		two := f.Daemon(t, "agentd", "two")
		says("agent available agent=two", n+1)
		two.Kill()
		says("agent left agent=two", n+1)
	}
	if err := os.RemoveAll(f.Path("state-two")); err != nil {
		t.Fatal(err)
	}
	topics, err := mqtt.NewTopics("fl/v1", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	admin := mqtttest.Dial(t, mqtt.Options{URL: f.Broker, ClientID: "admin"})
	admin.Subscribe(mqtt.AtLeastOnce, "done")
	mqtttest.Publish(t, admin, mqtt.Message{Topic: topics.Presence("two"), QoS: mqtt.AtLeastOnce, Retained: true})
	mqtttest.Publish(t, admin, mqtt.Message{Topic: "done", QoS: mqtt.AtLeastOnce, Payload: []byte("1")})
	mqtttest.Received(t, admin) // when this message arrives, the broker has processed the two earlier messages
	two := f.Daemon(t, "agentd", "two")
	f.awaitStatus(t, "two", "the device's start counter is too low")
	code, text, stderr := programs.Run(t, "coordinator", "devices", "list", "--config", f.Path("coordinator.yaml"),
		"--state", "absent")
	if code != 0 || !strings.Contains(text, "rejected: counter_behind") || strings.Contains(text, "one ") {
		t.Errorf("coordinator devices list: exit status %d, %s%s", code, text, stderr)
	}
	if code, _, stderr := programs.Run(t, "coordinator", "devices", "reset", "nobody", "--config",
		f.Path("coordinator.yaml")); code != 1 || !strings.Contains(stderr, "not in the list") {
		t.Errorf("reset of a stranger: exit status %d, %s", code, stderr)
	}
	programs.MustRun(t, "coordinator", "devices", "reset", "two", "--config", f.Path("coordinator.yaml"))
	two.Await(t, "coordinator accepts this device's messages again")
	says("agent available agent=two", 3)

	copyFiles(t, f.Path("copied"), f.Path("state-one"))
	clone := f.Daemon(t, "agentd", "one", "--set", "state_dir="+f.Path("copied"))
	f.awaitStatus(t, "one", "another device uses the identity of this agent")
	f.awaitStatus(t, "one", "another device uses the identity of this agent", "--set", "state_dir="+f.Path("copied"))
	for _, p := range []*testkit.Process{one, clone, two, unlisted, lead} {
		p.Stop(t, syscall.SIGTERM, 0)
	}
}
