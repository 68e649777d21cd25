//go:build chaos

package chaos

import (
	"fmt"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestLiars runs one hundred rounds in which one of seven devices sends false data. The score of the model must stay
// above a lower bound.
func TestLiars(t *testing.T) {
	for _, c := range []struct {
		name, what string
		how        []string // options for the command fedlab fleet
		kind       string   // kind of the rounds in which false updates are counted; empty if the device sends none
		round      string
	}{
		{"lie_statistics", "1 of 7 lies in the statistics round: means 10⁶, no spread",
			[]string{"--lie", "1:moments"},
			"statistics", ""},
		{"lie_rows", "1 of 7 claims 10⁹ rows in the statistics round", []string{"--lie", "1:rows"}, "statistics", ""},
		{"lie_1e30", "1 of 7 sends 10³⁰ in every round", []string{"--lie", "1:constant:1e30"}, "training", ""},
		{"lie_max", "1 of 7 sends 3.4·10³⁸ in every round", []string{"--lie", "1:max"}, "training", ""},
		{"lie_nan", "1 of 7 sends NaN in every round", []string{"--lie", "1:nan"}, "training", ""},
		{"lie_samples", "1 of 7 claims 10⁹ samples under `weights: samples` and `robust: true`",
			[]string{"--lie", "1:rows"}, "training", ", weights: samples, robust: true"},
		{"silent", "1 of 7 joins every round and sends no update before the deadline", []string{"--late", "1"}, "", ""},
	} {
		results.run(t, fault{c.name, c.what, "rounds continue; R² above 0.9",
			func(t *testing.T) string {
				p := newPlant(t, layout{agents: 6, quorum: 4, deadline: 5 * time.Second, liar: true, round: c.round})
				liar := p.lie(c.how...)
				p.start()
				p.await(5, 2*time.Minute)
				p.await(105, 10*time.Minute)
				url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(liar.Await(t, "serving metrics"))[1]
				lies := 0.0
				for _, end := range []string{`reason="none",result="accepted"`, `reason="not_finite",result="refused"`} {
					if c.kind != "" {
						lies += testkit.ScrapeMetric(t, url, `agentd_rounds_total{kind="`+c.kind+`",`+end+`}`)
					}
				}
				if lies == 0 && c.kind != "" {
					t.Error("the liar has sent nothing: this shows nothing")
				}
				r2 := p.r2()
				const good = 0.9
				if !(r2 > good) {
					t.Errorf("R² is %v after %v lies, want above %v", r2, lies, good)
				}
				liar.Stop(t, syscall.SIGTERM, 0)
				p.stop()
				return fmt.Sprintf("R² %.3f; %d of 100 rounds abandoned", r2, p.abandoned())
			}})
	}
}
