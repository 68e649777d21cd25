package simulate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/simulate"
	"github.com/fedmesh/fedmesh/spec"
)

const page = "../../docs/SIMULATION.md"

// examples writes the example experiments of the documentation and their data files to a folder. examples returns the
// path of each experiment, by name.
func examples(t *testing.T) map[string]string {
	t.Helper()
	text := read(t, page)
	dir := t.TempDir()
	var rows strings.Builder
	rows.WriteString("station,temperature,humidity,power\n")
	for i := range 60 {
		x := float64(i)
		fmt.Fprintf(&rows, "s%d,%v,%v,%v\n", i%3, math.Sin(x), math.Cos(x*x), math.Sin(x)+0.1*math.Cos(x))
	}
	write(t, filepath.Join(dir, "sensors.csv"), rows.String())
	files := map[string]string{}
	for i, block := range strings.Split(text, "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		block = strings.ReplaceAll(block, "file: sensors.csv", "file: "+filepath.Join(dir, "sensors.csv"))
		path := filepath.Join(dir, fmt.Sprintf("example-%d.yaml", i))
		write(t, path, block)
		files[path] = block
	}
	return files
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestExamples runs the example experiments of the documentation. A replay of the dump of each example must give the
// same files.
func TestExamples(t *testing.T) {
	all := examples(t)
	if len(all) < 4 {
		t.Fatalf("%d examples in %s", len(all), page)
	}
	for path := range all {
		t.Run(filepath.Base(path), func(t *testing.T) {
			out, dump, again := t.TempDir(), t.TempDir(), t.TempDir()
			var screen bytes.Buffer
			o := simulate.Options{
				Config: path, Out: out, Dump: dump, Set: map[string]string{"rounds": "25", "runs": "2"},
				Stdout: &screen, Stderr: &screen,
			}
			if err := simulate.Run(context.Background(), o); err != nil {
				t.Fatal(err)
			}
			if err := simulate.Run(context.Background(),
				simulate.Options{Load: dump, Out: again, Stdout: &screen, Stderr: &screen}); err != nil {
				t.Fatal(err)
			}
			var first, second sim.Result
			for dir, r := range map[string]*sim.Result{out: &first, again: &second} {
				if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "result.json"))), r); err != nil {
					t.Fatal(err)
				}
			}
			if !reflect.DeepEqual(first.Final, second.Final) || first.Experiment.Agents != second.Experiment.Agents ||
				first.Experiment.Agents < 2 {
				t.Errorf("what was dumped and loaded differs: %v, %v", first.Final, second.Final)
			}
			looksWhole(t, out, &first)
			if first.Experiment.Algorithm == spec.FedDec {
				arePictures(t, out, "compare_rounds", "compare_uplink_bytes", "compare_total_bytes")
				read(t, filepath.Join(out, "fedavg", "curves.csv"))
			}
		})
	}
}

// TestExamplesRecomputed recomputes the example experiments of the documentation in numpy, using only their dumps.
func TestExamplesRecomputed(t *testing.T) {
	if testing.Short() {
		t.Skip("each example is run a second time")
	}
	python := testkit.NumpyPython(t)
	for path := range examples(t) {
		dump := t.TempDir()
		o := simulate.Options{Config: path, Out: t.TempDir(), Dump: dump,
			Set: map[string]string{"rounds": "25", "runs": "1"}, Stdout: io.Discard, Stderr: io.Discard}
		if err := simulate.Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(python, "../../lab/sim/testdata/recompute.py", filepath.Join(dump,
			"experiment.json"),
			filepath.Join(dump, "run-0000")).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(path), err, out)
		}
	}
}

// TestSameFilesOnAnyCores checks that every output file is byte-identical on one core and on two cores. It tests
// parallel runs, and agents that are simulated in parallel.
func TestSameFilesOnAnyCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for text, runs := range map[string]string{
		"agents: 3000\nlocal_steps: 60\ndata: {spread: 0.1}\n":                                                     "1",
		"agents: 9\nalgorithm: feddec\nparticipants: 2\nmixing: {graph: random, probability: 0.5, link_up: 0.7}\n": "3",
	} {
		path := filepath.Join(t.TempDir(), "e.yaml")
		write(t, path, text)
		var first map[string]string
		for _, cores := range []int{1, 2} {
			runtime.GOMAXPROCS(cores)
			out := t.TempDir()
			var screen bytes.Buffer
			o := simulate.Options{Config: path, Out: out, Set: map[string]string{"rounds": "4", "runs": runs},
				Stdout: &screen, Stderr: &screen}
			if err := simulate.Run(context.Background(), o); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{}
			for _, pattern := range []string{"*", "fedavg/*"} {
				names, _ := filepath.Glob(filepath.Join(out, pattern))
				for _, name := range names {
					if filepath.Ext(name) != "" {
						files[strings.TrimPrefix(name, out)] = read(t, name)
					}
				}
			}
			if first == nil {
				first = files
			}
			if len(files) < 6 || !maps.Equal(files, first) {
				t.Errorf("%d cores write %d files, not all of them as one core does", cores, len(files))
			}
		}
	}
}

// looksWhole checks that the output files of a simulation are consistent with each other.
func looksWhole(t *testing.T, dir string, r *sim.Result) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(read(t, filepath.Join(dir, "curves.csv"))), "\n")
	if !strings.HasPrefix(lines[0], "round,") || len(lines) != len(r.Rounds)+1 {
		t.Errorf("curves.csv has %d lines, the first %q", len(lines), lines[0])
	}
	if len(r.Metrics) == 0 {
		t.Error("nothing is measured")
	}
	pictures := []string{}
	if r.Experiment.Algorithm == spec.FedDec {
		pictures = append(pictures, "graph")
	}
	for _, m := range r.Metrics {
		if !strings.Contains(lines[0], ","+m.Name+","+m.Name+"_ci95") {
			t.Errorf("%q lacks %s", lines[0], m.Name)
		}
		if !strings.HasSuffix(m.Name, "_bytes") {
			pictures = append(pictures, m.Name)
		}
	}
	arePictures(t, dir, pictures...)
}

func arePictures(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := png.Decode(strings.NewReader(read(t, filepath.Join(dir, name+".png")))); err != nil {
			t.Errorf("%s.png: %v", name, err)
		}
		if svg := read(t, filepath.Join(dir, name+".svg")); !strings.Contains(svg, "</svg>") {
			t.Errorf("%s.svg does not end", name)
		}
	}
}

// TestEveryKeyIsDocumented checks that the documentation names each configuration key of an experiment.
func TestEveryKeyIsDocumented(t *testing.T) {
	text := read(t, page)
	var look func(typ reflect.Type, prefix string)
	look = func(typ reflect.Type, prefix string) {
		for f := range fields(typ) {
			key := f.Tag.Get("yaml")
			if key == "-" {
				continue
			}
			if f.Type.Kind() == reflect.Struct && f.Type.NumField() > 0 && f.Type.Field(0).Tag.Get("yaml") != "" {
				below := prefix + key + "."
				switch key {
				case "data":
					below = ""
				case ",inline":
					below = prefix
				}
				look(f.Type, below)
			} else if !strings.Contains(text, "`"+prefix+key+"`") {
				t.Errorf("%s does not name %s%s", page, prefix, key)
			}
		}
	}
	look(reflect.TypeFor[sim.Experiment](), "")
}

func fields(typ reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range typ.NumField() {
			if !yield(typ.Field(i)) {
				return
			}
		}
	}
}

// TestRefused checks that an invalid experiment is refused before any file is written. The error must contain the key,
// its position in the file, and the violated limit.
func TestRefused(t *testing.T) {
	for text, want := range refusedExperiments {
		dir := t.TempDir()
		path, out := filepath.Join(dir, "e.yaml"), filepath.Join(dir, "out")
		write(t, filepath.Join(dir, "g.csv"), "from,to\na,b\nc,d\n")
		write(t, path, strings.ReplaceAll(text, "GRAPH", filepath.Join(dir, "g.csv")))
		err := simulate.Run(context.Background(), simulate.Options{Config: path, Out: out})
		var bad *config.Error
		if !errors.As(err, &bad) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: the complaint lacks %q:\n%v", text, w, err)
			}
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%q: something was written", text)
		}
	}
}

// refusedExperiments contains invalid experiments with the expected error texts. GRAPH is replaced by the path of a
// graph file whose graph is not connected.
var refusedExperiments = map[string][]string{
	"participants: 11\nagents: 10\n": {"e.yaml:1:15", "participants: is 11; want at most the number of agents (10)"},
	"agents: 10\nlocal_stops: 3\n": {"e.yaml:2:1",
		`unknown key "local_stops"; did you mean "local_steps"?`},
	"agents: 10\nstep_size:\n  constant: 2.5\n": {
		"e.yaml:3:13",
		"step_size.constant: is 2.5, but with M = 10, L = 10, E = 1 and B = 1 the mean-square error is stable only " +
			"below 0.9524",
	},
	"agents: 2\nexchange: gradient\nstep_size: {constant: 2.5}\ndata: {inputs: 2, regressor_var: [1, 0.5]}\n": {
		"e.yaml:3:23", "stable only below 2",
	},
	"agents: 2\nstep_size: {constant: 2.5}\ndata: {inputs: 2, regressor_var: [1, 0.5]}\n": {
		"e.yaml:2:23", "stable only below 2 = 2/λ_max(∇²J)",
	},
	"agents: 2\nlocal_steps: 2\nstep_size: {constant: 4.5}\ndata: {inputs: 2, regressor_var: [1, 0.5]}\n": {
		"e.yaml:3:23", "agent 0 is stable only below 4 = 2/",
	},
	"agents: 4\nstep_size: {constant: 30}\ndata: {kind: logistic, inputs: 5, model: {ridge: 0.1}}\n": {
		"e.yaml:2:23", "agent 0 is stable only below 20",
	},
	"agents: 10\nrounds: 1000000000\nrecord: 1\n": {
		"e.yaml:3:9", "exceeds the limit of 16777216 records",
	},
	"agents: 10\nrounds: 2000000000\n": {
		"e.yaml:2:9", "want 1 to 1000000000",
	},
	"agents: 100000\ndata: {kind: toy, centre: [1, 1], rows: 1000000}\n": {
		"e.yaml:2:41", "requires 2e+11 numbers for 100000 agents; want at most",
	},
	"agents: 1000\nbatch_size: 65536\ndata: {inputs: 60000}\n": {
		"e.yaml:2:13", "batch_size: is 65536, but with 60000 features the maximum is 2236",
	},
	"algorithm: feddec\nagents: 1001\nmixing: {graph: ring}\n": {
		"e.yaml:2:9", "at most 1000 with best-constant weights",
	},
	"algorithm: feddec\nagents: 2000000\n": {
		"e.yaml:2:9", "at most 1000000 with feddec",
	},
	"agents: 10\nlocal_steps: [1, 2]\n": {
		"e.yaml:2:14", "local_steps: has 2 numbers; want 1 for all agents, or one for each of the 10 agents",
	},
	"agents: 10\nweights: [1, 2]\n": {
		"e.yaml:2:10", "weights: has 2 numbers; want 1 for all agents, or one for each of the 10 agents",
	},
	"agents: 2\nbatch_size: [1, 0]\n": {
		"e.yaml:2:13", "batch size is 0, but must be between 1 and 65536 with a stream",
	},
	"agents: 2\nbatch_size: \"uniform(0, 3)\"\n": {
		"e.yaml:2:13", "batch size is 0, but must be between 1 and 65536 with a stream",
	},
	"agents: 2\nbatch_size: \"geometric(70000)\"\n": {
		"e.yaml:2:13", "want at most 65536",
	},
	"agents: 2\nweigh_rows: true\n": {
		"e.yaml:2:13", "agents with linear data have no rows",
	},
	"agents: 2\nweigh_rows: true\nweights: [1, 2]\ndata: {kind: toy, centre: [1]}\n": {
		"e.yaml:3:10", "weigh_rows uses the numbers of rows as weights",
	},
	"agents: 2\ndata: {kind: regression, inputs: 2, deviation: 1e200}\n": {
		"the squares of the rows of agent 0 are not finite",
	},
	"agents: 2\nstep_size: {diminishing: true}\ndata: {kind: regression, inputs: 30, rows: 2}\n": {
		"step_size.strong_convexity: is unknown",
	},
	"agents: 10\nlocal_steps: [1, 2.5]\n": {
		"e.yaml:2:18", "local_steps[1]: is 2.5; want a whole number from 1 to",
	},
	"agents: 10\ndata: {kind: csv, features: [a], target: b, partition: shards, file: nowhere.csv}\n": {
		"e.yaml:2:70", "nowhere.csv",
	},
	"algorithm: feddec\nagents: 50\nsampling: with_replacement\nmixing: {graph: geographic, radius: 0.01}\n": {
		"e.yaml:4:37",
		"mixing.radius: none of 80000 geographic graphs of 50 nodes with radius 0.01",
		"most graphs are connected from about 0.16 upwards",
	},
	"algorithm: feddec\nagents: 4\nmixing: {graph: file, file: GRAPH, weights: metropolis}\n": {
		"e.yaml:3:29", "mixing.file: ", "it has 2 components, {a, b} {c, d}",
	},
}

// TestDivergence checks a run that diverges. The program must report the round and the cause, and must write the
// measurements before the divergence.
func TestDivergence(t *testing.T) {
	dir := t.TempDir()
	path, out := filepath.Join(dir, "e.yaml"), filepath.Join(dir, "out")
	// With this step size, the mean is stable (μ < 2), but the mean square is not.
	write(t, path, "agents: 10\nrounds: 5000\nruns: 2\nrecord: 10\nstep_size: {constant: 1.9}\n"+
		"participants: 1\ndata: {inputs: 3, regressor_var: [1, 1, 0.5]}\n")
	var screen bytes.Buffer
	err := simulate.Run(context.Background(),
		simulate.Options{Config: path, Out: out, Stdout: &screen, Stderr: &screen})
	var diverged *sim.Divergence
	if !errors.As(err, &diverged) || diverged.Round < 20 {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("diverged in round %d: ", diverged.Round)) ||
		!strings.Contains(err.Error(), out) {
		t.Errorf("%v", err)
	}
	var r sim.Result
	if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "result.json"))), &r); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Rounds); n < 2 || r.Rounds[n-1] >= diverged.Round || r.Rounds[n-1] < diverged.Round-10 ||
		r.Divergence == nil {
		t.Errorf("kept are rounds up to %v, divergence %v", r.Rounds[n-1], r.Divergence)
	}
	looksWhole(t, out, &r)
}

// TestBadFolder checks that the error for a damaged dump names the file and the problem.
func TestBadFolder(t *testing.T) {
	dir := t.TempDir()
	path, dump := filepath.Join(dir, "e.yaml"), filepath.Join(dir, "dump")
	write(t, path, "agents: 3\nrounds: 2\nruns: 1\ndata: {inputs: 2}\n")
	o := simulate.Options{Config: path, Out: filepath.Join(dir, "out"), Dump: dump, Stdout: &bytes.Buffer{},
		Stderr: &bytes.Buffer{}}
	if err := simulate.Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	o.Config, o.Load, o.Dump = "", dump, ""
	for _, key := range []string{"data.noise_var", "agents", "weights", "mixing.radius"} {
		o.Set = map[string]string{key: "1", "step_size.constant": "0.02"}
		if err := simulate.Run(context.Background(), o); err == nil ||
			!strings.Contains(err.Error(), "--set "+key+": cannot change this key because the instance is loaded "+
				"from "+dump) {
			t.Errorf("--set %s: error %v", key, err)
		}
	}
	o.Set = map[string]string{"step_size.constant": "0.02"}
	if err := simulate.Run(context.Background(), o); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dump, "run-0000", "scale.npy")
	write(t, file, strings.Replace(read(t, file), "False", "True ", 1))
	if err := simulate.Run(context.Background(), o); err == nil ||
		err.Error() != file+": the array is in Fortran order: save numpy.ascontiguousarray(array) instead" {
		t.Errorf("error %v", err)
	}
}
