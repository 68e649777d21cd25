package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/internal/coordinatord/setup"
	"github.com/fedmesh/fedmesh/spec"
)

// TestInit checks that `coordinator init` works without a terminal if flags and a sample file are given, and that it
// names the missing answers otherwise.
func TestInit(t *testing.T) {
	sample := write(t, "sample.csv", "site,heat,wind,power\nx,1,2,0\ny,2,3,1\nz,2,5,2\n")
	discovered := write(t, "coordinator.discovered.yaml", "task:\n  inputs: [{name: t, unit: °C}, {name: p}]\n"+
		"  grid: {step: 10s}\n  features: [t, p]\n  target: t in 10s\n")
	noInputs := write(t, "other.yaml", "task:\n  features: [t]\n")
	const key = "fil3950OxALMdA+v0wsMd4plKKHwSRowzzQsiS93FYc="
	for _, tt := range []struct {
		args string
		code int
		says []string
	}{
		{"air --from DISCOVERED", 0, []string{"air learns to predict t in 10s from t, p: linear",
			"cat agentd.discovered.yaml >> agentd.yaml\n  agentd key new agent.key\n",
			"agentd run --config agentd.yaml --set id=ID\n"}},
		{"air --from DISCOVERED --features p --target SPACED --device KEYED", 0,
			[]string{"air learns to predict p in 20s from p: linear", "--set id=ID\nHere:\n  "}},
		{"air --from DISCOVERED --target q", 1, []string{"coordinator.discovered.yaml: task.target:"}},
		{"air --from NOINPUTS", 1, []string{"other.yaml has no task.inputs: use the file coordinator.discovered.yaml"}},
		{"air --from DISCOVERED --device one", 2, []string{"--device:"}},
		{"air --from DISCOVERED --device KEYED --broker mqtts://b.example:8883", 2,
			[]string{"--device: is set, but devices join with tokens"}},
		{"air --from SAMPLE", 0, []string{
			"air learns to predict power, one of 3 classes, from heat, wind: softmax, fedavg, at most 100 rounds",
			"Columns that are not used because they contain texts or times: site", "The broker is on this machine",
			"agentd key new agent.key\n",
			"agentd run --config agentd.yaml --set id=ID --set data.csv=FILE\n", `echo "ID KEY" >> DIR/agents.keys`,
			" run --config DIR/coordinator.yaml\n"}},
		{"air --from SAMPLE --robust", 0, []string{"air learns to predict power"}},
		{"air --from SAMPLE --model mlp", 0, []string{"power, one of 3 classes, from heat, wind: mlp"}},
		{"air --from SAMPLE --model linear --target wind --features heat --broker tls://b.example:8883", 0,
			[]string{"air learns to predict wind from heat: linear"}},
		{"--features a,b --target y --algorithm feddec --agents 3", 0,
			[]string{"air learns to predict y from a, b: linear, feddec"}},
		{"air --from SAMPLE --model autoencoder", 0,
			[]string{"air learns the relations between heat, wind, power: autoencoder"}},
		{"--features a,b --target y --model autoencoder", 2,
			[]string{"--target: is y, but a model of kind autoencoder has no target"}},
		{"--features a --target y --model external", 2, []string{"--model: is external", "docs/TRAINER.md"}},
		{"--features a --target y --model conv1d", 2, []string{"--model: is conv1d", "docs/ALGORITHMS.md"}},
		{"--features a,a --target y --model mlp --classes 1", 2,
			[]string{"contains a twice", "--classes: must be at least 2"}},
		{"air", 2, []string{"--features: is empty", "--target: is empty"}},
		{"air --from SAMPLE --target heta", 1, []string{`did you mean "heat"?`}},
		{"Air --features a --target y --model tree --agents -1", 2, []string{"NAME:", "--model:", "--agents:"}},
		{"air --from nothing.csv", 1, []string{"nothing.csv"}},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		args := strings.Fields(strings.NewReplacer("SAMPLE", sample, "DISCOVERED", discovered, "NOINPUTS",
			noInputs).Replace(tt.args))
		for i, arg := range args {
			args[i] = strings.NewReplacer("SPACED", "p in 20s", "KEYED", "one "+key).Replace(arg)
		}
		code, out, stderr := clitest.Run(rootCommand(), append(append([]string{"init"}, args...), "--dir", dir)...)
		for _, want := range tt.says {
			if want = strings.ReplaceAll(want, "DIR", dir); code != tt.code || !strings.Contains(out+stderr, want) {
				t.Errorf("init %s: exit status %d, %s%s; want %d and %q", tt.args, code, out, stderr, tt.code, want)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "coordinator.key")); (err == nil) != (code == 0) {
			t.Errorf("init %s: exit status %d, and of the key %v", tt.args, code, err)
		}
	}
}

// TestInitForThePackage checks that the suggested next commands are those for the packaged service, whose files must
// not be created by root.
func TestInitForThePackage(t *testing.T) {
	f := initWizard{}
	said := f.nextStepsText(setup.FederationFiles{CoordinatorConfig: setup.PackagedConfigDir + "/coordinator.yaml",
		AgentConfig: setup.PackagedConfigDir + "/agentd.yaml"})
	for _, want := range []string{"systemctl start coordinator\n", "systemctl start agentd\n",
		"agentd key new /etc/agentd/agent.key\n"} {
		if !strings.Contains(said, want) || strings.Contains(said, " run") {
			t.Errorf("said is %s, want %s", said, want)
		}
	}
}

// TestInitAsks checks that each question on the terminal has a default answer, and that a sample file provides most
// answers.
func TestInitAsks(t *testing.T) {
	sample := write(t, "sample.csv", "heat,wind,power\n1,2,0.5\n2,3,1\n2,5,2\n")
	for _, tt := range []struct {
		flags  initWizard
		typed  string
		shown  []string
		wanted string
	}{
		{initWizard{}, "plant\n\n" + sample + "\n\n\n\n\n7\n\n", []string{"Name of the federation [air]: ",
			"Broker [tcp://127.0.0.1:1883]: ", "Numeric columns: heat, wind, power\n",
			"Target: the column to predict [power]: ", "Features: input columns, separated by commas [heat,wind]: ",
			"Model: " + spec.JoinWithOr(setup.ModelKinds()) + " [linear]: ", "Algorithm: fedavg or feddec [fedavg]: ",
			"Number of devices [5]: ", "unusual data (yes or no) [no]: "},
			"plant learns to predict power from heat, wind: linear, fedavg, at most 100 rounds"},
		{initWizard{csvSamplePath: sample}, "\n\nwind\nheat\nmlp\nfeddec\n\nyes\n", nil,
			"air learns to predict wind from heat: mlp, feddec, at most 100 rounds"},
		{initWizard{}, "\n\n\ny\na, b\nsoftmax\n4\n\n\nno\n", []string{"Classes: "},
			"air learns to predict y, one of 4 classes, from a, b: softmax"},
		{initWizard{}, "\n\n\ny\na\n\n\nmany\n", nil, `"many" is not a whole number above 0`},
		{initWizard{}, "\n\n\ny\na\n\n\n\nperhaps\n", nil, `"perhaps" is neither yes nor no`},
		{initWizard{}, "air\n", nil, "no files were created"},
	} {
		f := tt.flags
		f.dir = t.TempDir()
		var out bytes.Buffer
		if err := f.createFederation(&out, &terminalPrompt{input: strings.NewReader(tt.typed),
			output: &out}); err != nil {
			out.WriteString(err.Error())
		}
		for _, want := range append(tt.shown, tt.wanted) {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q typed: %s\nwant %q", tt.typed, out.String(), want)
			}
		}
		text, _ := os.ReadFile(filepath.Join(f.dir, "coordinator.yaml"))
		want := strings.Contains(tt.typed, "yes")
		if robust := strings.Contains(string(text), "\n  robust: true "); robust != want {
			t.Errorf("%q typed: robust is %v", tt.typed, robust)
		}
	}
}

// TestInitAddsDevices checks that --device adds devices to an existing list of agents, and never replaces a key.
func TestInitAddsDevices(t *testing.T) {
	const one, two = "fil3950OxALMdA+v0wsMd4plKKHwSRowzzQsiS93FYc=", "Zk0w0Gx8m5sN3cJq2pVd9QyTt1uLr7EoKb6HfXiA4g8="
	dir := filepath.Join(t.TempDir(), "new")
	for _, tt := range []struct {
		devices []string
		want    string // expected error, or expected lines of devices in the list of agents
	}{
		{nil, ""},
		{[]string{"a " + one}, "a " + one + "\n"},
		{[]string{"a " + one, "b " + two}, "a " + one + "\nb " + two + "\n"},
		{[]string{"a " + two}, "contains this key for the device b"},
		{[]string{"c " + one}, "contains this key for the device a"},
	} {
		args := []string{"init", "air", "--features", "x", "--target", "y", "--force", "--dir", dir}
		for _, device := range tt.devices {
			args = append(args, "--device", device)
		}
		code, out, stderr := clitest.Run(rootCommand(), args...)
		list, err := os.ReadFile(filepath.Join(dir, "agents.keys"))
		if err != nil {
			t.Fatal(err)
		}
		isError := strings.HasPrefix(tt.want, "contains")
		if isError != (code != 0) || isError && !strings.Contains(stderr, tt.want) ||
			!isError && !strings.HasSuffix(string(list), "has printed on the device.\n"+tt.want) {
			t.Errorf("%q: exit status %d, %s%s; list\n%s", tt.devices, code, out, stderr, list)
		}
	}
}
