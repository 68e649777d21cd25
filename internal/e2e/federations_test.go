package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestOneDeviceTwoFederations runs one agentd that belongs to two federations on one broker. It kills agentd while both
// federations train, and restarts it. Both federations must finish their runs. Status, doctor and metrics must
// distinguish the federations.
func TestOneDeviceTwoFederations(t *testing.T) {
	t.Parallel()
	url := brokers.OpenMosquitto(t)
	air, power := testkit.NewFederation(t, programs, "air", url), testkit.NewFederation(t, programs, "power", url)
	line := "one " + air.MustRun(t, "agentd", "key", "new", air.Path("one.key"))
	rounds := "{participants: 1, quorum: 1, rounds: 40, deadline: 1m, gather: {target: 1, minimum: 1, within: 20s, " +
		"spread: 10ms}}"
	air.ConfigureCoordinator(t, "{name: plane, features: [a, b], target: y, steps: {min: 20000, max: 20000}}", line,
		rounds)
	power.ConfigureCoordinator(t, "{name: line, features: [a], target: watts, steps: {min: 2000, max: 2000}}", line,
		rounds)
	config := air.Write(t, "one.yaml", fmt.Sprintf(`
id: one
state_dir: %s
broker: {url: %s}
identity: {key_file: %s}
metrics: {listen: "127.0.0.1:0"}
federations:
  - federation: air
    identity: {coordinator_key: %q}
    data: {csv: %s}
  - federation: power
    identity: {coordinator_key: %q}
    data: {csv: %s, columns: {watts: y}}
    privacy: {min_rows: 20}
`, air.Path("state-one"), url, air.Path("one.key"), air.CoordinatorKey, air.Write(t, "air.csv", plane(60)),
		power.CoordinatorKey, air.Write(t, "power.csv", plane(40))))
	leads := []*testkit.Process{air.Daemon(t, "coordinator", "coordinator"),
		power.Daemon(t, "coordinator", "coordinator")}
	one := air.Daemon(t, "agentd", "one")
	for _, lead := range leads {
		lead.Await(t, "round closed round=5")
	}
	one.Kill()
	one = air.Daemon(t, "agentd", "one")
	metrics := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(one.Await(t, "serving metrics"))[1]
	for i, lead := range leads {
		lead.Await(t, "run finished version=40")
		name := []string{"air", "power"}[i]
		testkit.Until(t, "the metrics of "+name+" are at the end", func() bool {
			return testkit.ScrapeMetric(t, metrics, fmt.Sprintf("agentd_round{federation=%q}", name)) == 41
		})
		if text := air.MustRun(t, "agentd", "status", "--federation", name, "--config", config); !strings.Contains(text,
			"agent one of federation "+name) || strings.Count(text, "agentd  ") != 1 {
			t.Errorf("status of %s:\n%s", name, text)
		}
	}
	text := air.MustRun(t, "agentd", "status", "--config", config)
	first, second := strings.Index(text, "federation air"), strings.Index(text, "federation power")
	if first < 0 || second < first {
		t.Errorf("status:\n%s", text)
	}
	one.Stop(t, syscall.SIGTERM, 0)
	text = air.MustRun(t, "agentd", "doctor", "--config", config)
	for _, want := range []string{"federation air:\n", "accepted the connection with the client id air-one",
		"federation power:\n",
		"accepted the connection with the client id power-one"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in what the doctor says:\n%s", want, text)
		}
	}
	testkit.StopAll(t, leads...)
}
