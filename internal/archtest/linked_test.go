package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// linked describes one package in the output of `go list -deps -json`.
type linked struct {
	ImportPath string
	Imports    []string
}

// TestLinks checks for every supported operating system that the daemons do not link forbidden packages.
func TestLinks(t *testing.T) {
	for _, program := range []string{"agentd", "coordinator"} {
		for _, goos := range []string{"linux", "darwin", "windows", "android"} {
			t.Run(program+"/"+goos, func(t *testing.T) {
				report(t, unwantedLinks(program, programPackages(t, goos, "./cmd/"+program)))
			})
		}
	}
}

// programPackages lists all packages that a program links, including the standard library.
func programPackages(t *testing.T, goos, program string) []linked {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports", program)
	cmd.Dir = root
	// arm64 is available on every supported operating system.
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=arm64", "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v\n%s", program, err, stderr.String())
	}
	var packages []linked
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p linked
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list -deps %s: %v", program, err)
		}
		packages = append(packages, p)
	}
}

// unwantedLinks returns a message for each linked package that the rules forbid. The message also lists the packages
// that import the forbidden package.
func unwantedLinks(program string, packages []linked) []string {
	var complaints []string
	for _, p := range packages {
		for _, rule := range unlinked {
			if rule.program != program || !matches(rule.path, p.ImportPath) {
				continue
			}
			importers := importersOf(packages, p.ImportPath, rule.path)
			importers = slices.DeleteFunc(importers, func(i string) bool { return i == rule.except })
			if len(importers) > 0 {
				complaints = append(complaints,
					fmt.Sprintf("%s links %s, imported by %s: %s", program, p.ImportPath, strings.Join(importers, ", "),
						rule.why))
			}
		}
	}
	return complaints
}

// importersOf returns the packages that import the package imported. importersOf omits importers that the same rule
// already forbids.
func importersOf(packages []linked, imported, ruled string) []string {
	var importers []string
	for _, p := range packages {
		if slices.Contains(p.Imports, imported) && !matches(ruled, p.ImportPath) {
			importers = append(importers, p.ImportPath)
		}
	}
	return importers
}

// TestLinksRed tests unwantedLinks with programs that link forbidden packages and with a valid program.
func TestLinksRed(t *testing.T) {
	const main = module + "/cmd/agentd"
	for path, want := range map[string]string{
		module + "/mqtt/broker":                   "agentd links " + module + "/mqtt/broker, imported by " + main,
		module + "/coordinator":                   "agentd links " + module + "/coordinator, imported by " + main,
		module + "/coordinator/enrolled":          "agentd links " + module + "/coordinator/enrolled",
		module + "/internal/coordinatord/history": "agentd links " + module + "/internal/coordinatord/history",
		module + "/metrics/coordinatormetrics":    "agentd links " + module + "/metrics/coordinatormetrics",
		module + "/lab/sim":                       "agentd links " + module + "/lab/sim",
		"gonum.org/v1/gonum/mat":                  "agentd links gonum.org/v1/gonum/mat",
		"gonum.org/v1/plot/vg":                    "agentd links gonum.org/v1/plot/vg",
		"text/template":                           "agentd links text/template, imported by " + main,
		"html/template":                           "agentd links html/template",
		"net/http/pprof":                          "agentd links net/http/pprof",
		"gonum.org/v1/gonum/blas/gonum":           "",
		"net/http":                                "",
	} {
		wantComplaint(t, unwantedLinks("agentd", []linked{{path, nil}, {main, []string{path}}}), want)
	}
	const server = module + "/cmd/coordinator"
	for path, want := range map[string]string{
		module + "/mqtt/broker":                 "coordinator links " + module + "/mqtt/broker, imported by " + server,
		module + "/lab/sim/data":                "coordinator links " + module + "/lab/sim/data",
		module + "/agent":                       "coordinator links " + module + "/agent, imported by " + server,
		module + "/agent/device":                "coordinator links " + module + "/agent/device",
		module + "/internal/agentd/agentconfig": "coordinator links " + module + "/internal/agentd/agentconfig",
		module + "/metrics/agentmetrics":        "coordinator links " + module + "/metrics/agentmetrics",
		module + "/mqtt/broker/acl":             "",
		"gonum.org/v1/gonum/mat":                "",
	} {
		wantComplaint(t, unwantedLinks("coordinator", []linked{{path, nil}, {server, []string{path}}}), want)
	}
	cobra := linked{"github.com/spf13/cobra", []string{"text/template"}}
	template := []linked{{"text/template", []string{"text/template/parse"}}, {"text/template/parse", nil}}
	wantComplaint(t, unwantedLinks("agentd", append(template, cobra)), "")
	wantComplaint(t, unwantedLinks("agentd", append(template, cobra, linked{main, []string{"text/template"}})),
		"imported by "+main+":")
}
