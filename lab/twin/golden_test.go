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

// golden is one file: a problem, all that was drawn, and the iterates that follow.
type golden struct {
	Algorithm string
	Risk      string
	Inputs    int
	Hidden    int
	Ridge     float64
	Agents    []agent
	Start     []float64
	Rounds    []drawn
	Iterates  [][]float64 // w_1, w_2, …; of feddec the vectors of all agents, one after the other

	StepSize        float64  `json:"step_size"`
	Tau             int      // notes
	StrongConvexity float64  `json:"strong_convexity"` // feddec
	Gamma           float64  // feddec
	ServerEvery     int      `json:"server_every"` // feddec
	Edges           [][2]int // feddec
	Clip            float64  // feddec: τ; 0 = none
}

type agent struct {
	X          [][]float64
	Y          []float64
	LocalSteps int     `json:"local_steps"` // E_k
	P          float64 // p_k; 0 = 1/K
	Delta      float64 // δ_k
}

// drawn is what one round draws: the participants, in order, and for each its local steps.
type drawn struct {
	Participants []int
	Steps        [][]step
	Links        []bool      // feddec: which edges are up
	Mixing       [][]float64 // feddec: W^t
}

type step struct {
	Rows     []int
	Noise    []float64
	Responds *bool // nil = always
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

// compare fails at the first iterate that is off by more than 1e-10.
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

// TestGoldenAgain derives the iterates again from the inputs in the files.
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

// TestGoldenSources: each file names the equations it follows.
func TestGoldenSources(t *testing.T) {
	for _, g := range load(t) {
		if len(g.Iterates) < 10 || len(g.Iterates) != len(g.Rounds) || strings.TrimSpace(g.Algorithm) == "" {
			t.Errorf("%s: %d rounds, %d iterates", g.Algorithm, len(g.Rounds), len(g.Iterates))
		}
	}
}
