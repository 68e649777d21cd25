package archtest

import (
	"fmt"
	"testing"
)

// TestFloors checks that each package imports only packages on lower floors (layers of the architecture).
func TestFloors(t *testing.T) {
	report(t, upwardImports(loadHouse(t)))
}

// upwardImports returns a message for each package without a floor (layer of the architecture), and for each import of
// a package on the same or a higher floor.
func upwardImports(pkgs []pkg) []string {
	var complaints []string
	for _, p := range pkgs {
		here, known := roomOf(p.path)
		if !known {
			complaints = append(complaints,
				fmt.Sprintf("package %s has no floor: add it to rooms in internal/archtest/rules_test.go, with the "+
					"reason, and to docs/ARCHITECTURE.md", p.path))
			continue
		}
		for _, file := range p.files {
			for _, spec := range file.Imports {
				target, own := ours(importPath(spec))
				there, known := roomOf(target)
				if !own || !known || there.floor < here.floor || standsBeside(p.path, target) {
					continue
				}
				complaints = append(complaints,
					fmt.Sprintf("%s: %s (floor %d) imports %s (floor %d); imports run downwards only: %s is %q",
						file.at(spec), p.path, here.floor, target, there.floor, p.path, here.why))
			}
		}
	}
	return complaints
}

// standsBeside reports whether the list named beside allows an import between two packages of the same floor.
func standsBeside(from, to string) bool {
	for _, b := range beside {
		if matches(b.from, from) && matches(b.to, to) {
			return true
		}
	}
	return false
}

// TestFloorsRed tests upwardImports with invalid and valid imports.
func TestFloorsRed(t *testing.T) {
	imports := func(path string) string { return "package p\nimport _ \"" + module + "/" + path + "\"\n" }
	tests := []struct {
		name, file, text, want string
	}{
		{"down", "agent/a.go", imports("wire"), ""},
		{"up", "wire/a.go", imports("agent"), "wire/a.go:2: wire (floor 1) imports agent (floor 3)"},
		{"sideways", "agent/a.go", imports("coordinator"), "agent (floor 3) imports coordinator (floor 3)"},
		{"sideways on the ground floor", "learner/a.go", imports("wire"), "learner (floor 1) imports wire (floor 1)"},
		{"a part does not know the agent", "agent/budget/a.go", imports("agent"),
			"agent/budget (floor 3) imports agent (floor 3)"},
		{"a part does not know another", "agent/budget/a.go", imports("agent/device"),
			"agent/budget (floor 3) imports agent/device (floor 3)"},
		{"allowed beside", "mqtt/broker/a.go", imports("mqtt"), ""},
		{"not the other way round", "mqtt/a.go", imports("mqtt/broker"),
			"mqtt (floor 2) imports mqtt/broker (floor 2)"},
		{"commands share", "cmd/agentd/a.go", imports("internal/config"), ""},
		{"a command from below", "store/a.go", imports("internal/config"),
			"store (floor 2) imports internal/config (floor 4)"},
		{"unknown package", "utils/a.go", "package utils\n", "package utils has no floor: add it to rooms"},
		{"unknown below a known one", "store/cache/a.go", "package cache\n", "package store/cache has no floor"},
		{"another platform's file", "wire/a_plan9.go", imports("store"), "wire/a_plan9.go:2"},
		{"behind a build tag", "wire/a.go", "//go:build never\n\n" + imports("store"), "wire/a.go:4"},
		{"tests may", "wire/a_test.go", imports("agent"), ""},
		{"other modules are not ours", "tools/x/a.go", imports("agent"), ""},
		{"testdata is not ours", "wire/testdata/a.go", imports("agent"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pkgs := loadFiles(t, map[string]string{tt.file: tt.text, "tools/x/go.mod": "module x\n"})
			wantComplaint(t, upwardImports(pkgs), tt.want)
		})
	}
}

// TestEveryRuleHasAReason checks that every rule states a reason, because a rule without a reason is hard to change.
func TestEveryRuleHasAReason(t *testing.T) {
	for _, r := range rooms {
		if r.why == "" || r.floor < 1 || r.floor > 6 {
			t.Errorf("room %s: floor %d, reason %q", r.path, r.floor, r.why)
		}
	}
	for _, b := range beside {
		if b.why == "" {
			t.Errorf("%s may import %s: no reason given", b.from, b.to)
		}
	}
	for _, i := range impureImports {
		if i.why == "" {
			t.Errorf("impure import %s: no reason given", i.path)
		}
	}
	for _, l := range unlinked {
		if l.why == "" {
			t.Errorf("%s must not link %s: no reason given", l.program, l.path)
		}
	}
}
