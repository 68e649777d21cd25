package bench

import (
	"cmp"
	"context"
	_ "embed" // The blank import enables go:embed.
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// flowerVersion is the version of Flower that is installed from PyPI.
const flowerVersion = "1.41.0"

//go:embed flower.py
var flowerProgram []byte

// FlowerOptions are the options of the comparison with Flower.
type FlowerOptions struct {
	Runs
	Cells []string // cases to measure, each as AGENTSxELEMENTS, for example 10x1000
	Venv  string   // folder of Flower's Python environment, created if missing; "" means a folder in the user's cache
	Into  string   // Markdown page whose result tables are replaced; "" means none
}

// FlowerDefaults returns the default options, which docs/BENCHMARKS.md uses. Folders stay empty, because the manual
// page shows the defaults and must not depend on the machine.
func FlowerDefaults() FlowerOptions {
	return FlowerOptions{
		Cells: []string{"4x1000", "50x1000", "10x100000", "10x1000000"}, Runs: Runs{Reps: 5, Memory: "/dev/shm"},
	}
}

// find fills empty folder options with folders of this machine.
func (o *FlowerOptions) find() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	o.Venv = cmp.Or(o.Venv, filepath.Join(cache, "fedmesh", "flwr-"+flowerVersion))
	return o.Runs.find()
}

// Names of the contestants: fedmesh with the agents' state on disk or in memory, and Flower. The coordinator's state is
// always on disk.
const (
	agentsOnDisk   = "agents on disk"
	agentsInMemory = "agents on tmpfs"
	flower         = "Flower"
)

func (o *FlowerOptions) matches() (all []*match, err error) {
	for _, text := range o.Cells {
		m := parseMatch(text)
		if m == nil {
			return nil, fmt.Errorf("--cells: want AGENTSxELEMENTS with an even number of elements, such as 4x1000; "+
				"got %q",
				text)
		}
		all = append(all, m)
	}
	return all, o.check()
}

// RunFlower alternately runs fedmesh on Mosquitto and Flower, and prints tables that compare them.
func RunFlower(ctx context.Context, o FlowerOptions, out io.Writer) error {
	all, err := o.matches()
	if err != nil {
		return err
	}
	if err := o.find(); err != nil {
		return err
	}
	if err := o.install(ctx, out); err != nil {
		return err
	}
	for _, m := range all {
		for rep := range o.Reps {
			for _, name := range []string{agentsOnDisk, flower, agentsInMemory} {
				r, err := o.run(ctx, m, name)
				if err != nil {
					return fmt.Errorf("%s, %d agents, d = %d: %w", name, m.agents, m.dim, err)
				}
				m.runs[name] = append(m.runs[name], r)
				fmt.Fprintf(out, "%d agents, d = %d, run %d, %s: %s ms per round\n", m.agents, m.dim, rep+1, name,
					milliseconds(r.took))
			}
		}
	}
	tables := flowerTables(all, o.Reps)
	fmt.Fprintf(out, "\n%s", tables)
	if o.Into == "" {
		return nil
	}
	return replaceBetween(o.Into, "<!-- from make bench-flower -->\n", "<!-- to here -->", tables)
}

func (o *FlowerOptions) run(ctx context.Context, m *match, name string) (race, error) {
	switch name {
	case flower:
		return o.runFlower(ctx, m)
	case agentsInMemory:
		return o.runOurs(ctx, m, o.Memory)
	}
	return o.runOurs(ctx, m, o.Dir)
}

// install creates Flower's environment unless it exists.
func (o *FlowerOptions) install(ctx context.Context, out io.Writer) error {
	python := o.python()
	if exec.CommandContext(ctx, python, "-c", "import flwr, numpy").Run() == nil {
		return nil
	}
	fmt.Fprintf(out, "installing Flower %s into %s\n", flowerVersion, o.Venv)
	for _, command := range [][]string{
		{"python3", "-m", "venv", o.Venv},
		{python, "-m", "pip", "--quiet", "install", "flwr==" + flowerVersion, "numpy"},
	} {
		if text, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, text)
		}
	}
	return nil
}

func (o *FlowerOptions) python() string { return filepath.Join(o.Venv, "bin", "python") }

// replaceBetween replaces the text between the markers begin and end of the file at path.
func replaceBetween(path, begin, end, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return errors.New(path + " does not contain the marks " + strings.TrimSpace(begin) + " and " + end)
	}
	return os.WriteFile(path, []byte(before+begin+text+end+after), 0o644)
}
