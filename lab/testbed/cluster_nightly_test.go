//go:build nightly

package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestUpCluster kills the leader of three coordinators. It checks that another coordinator takes over, and that the
// model and all rounds exist at the end.
func TestUpCluster(t *testing.T) {
	o := options(t)
	o.Cluster, o.tools = true, findTools()
	o.tools.nats, o.tools.prometheus = brokers.NATSServer(t), ""
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log := func(name string) string {
		text, _ := os.ReadFile(o.Dir + "/" + name + ".log")
		return string(text)
	}
	o.Stdout = &said{when: "the federation is running", then: func() {
		go func() {
			defer stop()
			first := ""
			for i := range nodes {
				if strings.Contains(log(coordinatorName(i)), "this coordinator is now the leader") {
					first = coordinatorName(i)
				}
			}
			testkit.Until(t, "a round is closed", func() bool {
				return strings.Contains(log(first), "round closed round=3 ")
			})
			if out, err := exec.Command("pkill", "-9", "-f", o.Dir+"/"+first+".yaml").CombinedOutput(); err != nil {
				t.Errorf("pkill: %v: %s", err, out)
			}
			testkit.Until(t, "another one leads and closes rounds", func() bool {
				for i := range nodes {
					name := coordinatorName(i)
					if _, led, leads := strings.Cut(log(name),
						"this coordinator is now the leader"); name != first && leads &&
						strings.Count(led, "round closed") > 1 {
						return true
					}
				}
				return false
			})
			testkit.Until(t, "the first one stands by", func() bool {
				return strings.Contains(log(first), "on standby")
			})
		}()
	}}
	if err := Up(ctx, o); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(o.Dir + "/history.jsonl"); err != nil || strings.Count(string(text), "\n") < 5 {
		t.Errorf("the history is %s, %v", text, err)
	}
	if out := fmt.Sprint(o.Stdout); !strings.Contains(out, "3, with their state in 3 NATS servers") {
		t.Errorf("it says %s", out)
	}
}
