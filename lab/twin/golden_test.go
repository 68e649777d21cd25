package twin

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// golden is the content of one golden file: a problem, all random draws, and the resulting parameters after each round.
type golden struct {
	Algorithm string
	Risk      string
	Inputs    int
	Hidden    int
	Ridge     float64
	Agents    []agent
	Start     []float64
	Rounds    []drawn
	Iterates  [][]float64 // parameters after each round 1, 2, …; for FedDec, the parameters of all agents in one row

	StepSize        float64  `json:"step_size"`
	Tau             int      // number τ of local steps in Renard's notes
	StrongConvexity float64  `json:"strong_convexity"` // FedDec: strong convexity constant
	Gamma           float64  // FedDec: constant γ of the diminishing step size
	ServerEvery     int      `json:"server_every"` // FedDec: number H of iterations between two server rounds
	Edges           [][2]int // FedDec: edges of the graph
	Clip            float64  // FedDec: clipping bound; 0 means no clipping
}

type agent struct {
	X          [][]float64
	Y          []float64
	LocalSteps int     `json:"local_steps"` // number E_k of local steps of agent k
	P          float64 // weight p_k of agent k; 0 means 1/K
	Delta      float64 // probability δ_k that a local step happens
}

// drawn contains the random draws of one round: the participants in order, and the local steps of each participant.
type drawn struct {
	Participants []int
	Steps        [][]step
	Links        []bool      // FedDec: whether each edge works in this round
	Mixing       [][]float64 // FedDec: mixing matrix W^t
}

type step struct {
	Rows     []int
	Noise    []float64
	Responds *bool // true if the agent responds; nil means that it always responds
}

func load(t *testing.T) []golden {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 18 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	all := make([]golden, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &all[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// compare fails the test at the first round in which an error exceeds 1e-10.
func (g *golden) compare(t *testing.T, got [][]float64) {
	t.Helper()
	if len(got) != len(g.Iterates) {
		t.Fatalf("%d iterates, want %d", len(got), len(g.Iterates))
	}
	for i, want := range g.Iterates {
		for j, v := range want {
			if !(math.Abs(got[i][j]-v) <= 1e-10) {
				t.Fatalf("element %d after round %d is %.12g, want %.12g", j, i+1, got[i][j], v)
			}
		}
	}
}

// TestGoldenAgain checks that twin.py computes the same parameters again from the inputs in the golden files.
func TestGoldenAgain(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is missing, and CI=true")
		}
		t.Skip("python3 is missing")
	}
	out, err := exec.Command(python, "-B", "twin.py", "check", "testdata").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestGoldenSources checks that each golden file names the equations of its source.
func TestGoldenSources(t *testing.T) {
	for _, g := range load(t) {
		if len(g.Iterates) < 10 || len(g.Iterates) != len(g.Rounds) || strings.TrimSpace(g.Algorithm) == "" {
			t.Errorf("%s: %d rounds, %d iterates", g.Algorithm, len(g.Rounds), len(g.Iterates))
		}
	}
}
