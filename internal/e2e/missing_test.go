package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestAnnouncementMissing checks four causes of a missing announcement: a wrong coordinator_key, a wrong federation,
// missing access rules, and a device that the coordinator does not list. The status and the doctor must name each
// cause, and the doctor must exit with status 1.
func TestAnnouncementMissing(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgent(t, "good", plane(60)) + f.AddAgent(t, "key", plane(60)) + f.AddAgent(t, "name", plane(60)) +
		f.AddAgent(t, "access", plane(60))
	f.AddAgent(t, "unlisted", plane(60))
	f.lead(t, list, `{participants: 1, quorum: 1, pause: 50ms, deadline: 20s, gather: {minimum: 1, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	good := f.Daemon(t, "agentd", "good")
	lead.Await(t, "agent available agent=good")

	closed := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	closed.Write(t, "acl", []byte("topic readwrite elsewhere/#\n"))
	closed.Configure(t, []byte(brokers.AnonymousListenerConf+"acl_file "+closed.Dir+"/acl\n"))
	closed.Start(t)
	for id, tt := range map[string]struct {
		set, log, status, doctor string
	}{
		"key": {"identity.coordinator_key=" + strings.Fields(list)[1], "no valid announcement received agent=key " +
			"reason=wrong_key",
			"signed with a key that this device does not accept", "identity.coordinator_key"},
		"name": {"federation=other", "no valid announcement received agent=name reason=wrong_federation",
			"announces federation e2e, but agentd.yaml has federation: other",
			"set federation: e2e"},
		"access": {"broker.url=tcp://" + closed.Address, "broker test failed agent=access result=denied",
			"the broker's access rules block messages to this user",
			"systemctl reload mosquitto"},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			set := []string{"--set", tt.set}
			d := f.Daemon(t, "agentd", id, set...)
			d.Await(t, tt.log)
			f.awaitStatus(t, id, tt.status, set...)
			args := append([]string{"doctor", "--config", f.Path(id + ".yaml")}, set...)
			code, out, _ := programs.Run(t, "agentd", args...)
			if code != 1 || !strings.Contains(out, "BAD   coordinator") || !strings.Contains(out, tt.doctor) {
				t.Errorf("doctor beside agentd: exit status %d, want 1 and %q in\n%s", code, tt.doctor, out)
			}
			d.Stop(t, syscall.SIGTERM, 0)
		})
	}
	if code, out, _ := programs.Run(t, "agentd", "doctor", "--config", f.Path("good.yaml")); code != 0 ||
		!strings.Contains(out, "the coordinator announces the task") {
		t.Errorf("doctor of a good device: exit status %d\n%s", code, out)
	}
	unlisted := f.Daemon(t, "agentd", "unlisted")
	unlisted.Await(t, "coordinator ignores this device's messages")
	code, out, _ := programs.Run(t, "agentd", "doctor", "--config", f.Path("unlisted.yaml"))
	if code != 1 || !strings.Contains(out, "ignores this device") || !strings.Contains(out, "agentd key show") {
		t.Errorf("doctor of a device that is not in the list: exit status %d\n%s", code, out)
	}
	unlisted.Stop(t, syscall.SIGTERM, 0)
	good.Stop(t, syscall.SIGTERM, 0)
	lead.Stop(t, syscall.SIGTERM, 0)
}
