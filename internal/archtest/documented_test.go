package archtest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// TestPackageComments checks that every package has a package comment.
func TestPackageComments(t *testing.T) {
	report(t, withoutComment(loadHouse(t)))
}

// withoutComment returns a message for each package whose comment is missing or does not begin as godoc requires.
func withoutComment(pkgs []pkg) []string {
	var complaints []string
	for _, p := range pkgs {
		if !hasComment(p) {
			complaints = append(complaints,
				fmt.Sprintf(`package %s has no package comment: start one with "Package %s ", or "Command %s " for a command, in doc.go`,
					p.path, path.Base(p.path), path.Base(p.path)))
		}
	}
	return complaints
}

func hasComment(p pkg) bool {
	for _, file := range p.files {
		want := "Package " + file.Name.Name + " "
		if file.Name.Name == "main" {
			want = "Command " + path.Base(p.path) + " "
		}
		if strings.HasPrefix(file.Doc.Text(), want) {
			return true
		}
	}
	return false
}

// TestPackageCommentsRed tests withoutComment with invalid and valid packages.
func TestPackageCommentsRed(t *testing.T) {
	tests := []struct{ name, file, text, want string }{
		{"none", "wire/a.go", "package wire\n", `package wire has no package comment: start one with "Package wire "`},
		{"of something else", "wire/a.go", "// Package store is not this.\npackage wire\n", "package wire has no"},
		{"detached", "wire/a.go", "// Package wire is detached.\n\npackage wire\n", "package wire has no"},
		{"command", "cmd/agentd/main.go", "// Package main runs.\npackage main\n", "package cmd/agentd has no"},
		{"tests only", "wire/a_test.go", "// Package wire is only tested.\npackage wire\n", "package wire has no"},
		{"good", "wire/a.go", "// Package wire is every byte.\npackage wire\n", ""},
		{"good command", "cmd/agentd/main.go", "// Command agentd runs on a device.\npackage main\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantComplaint(t, withoutComment(loadFiles(t, map[string]string{tt.file: tt.text})), tt.want)
		})
	}
}

// TestDependenciesAreNamed checks that docs/ARCHITECTURE.md names every direct dependency.
func TestDependenciesAreNamed(t *testing.T) {
	report(t, unnamed(directDependencies(t), architecture(t)))
}

// architecture returns the text of docs/ARCHITECTURE.md, which describes the packages and dependencies.
func architecture(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestPackagesAreNamed checks that docs/ARCHITECTURE.md mentions every package, by its path or by the last element of
// the path.
func TestPackagesAreNamed(t *testing.T) {
	report(t, unplaced(loadHouse(t), architecture(t)))
}

func unplaced(pkgs []pkg, page string) []string {
	var complaints []string
	for _, p := range pkgs {
		if !strings.Contains(page, "`"+p.path+"`") && !strings.Contains(page, "`"+path.Base(p.path)+"`") {
			complaints = append(complaints,
				fmt.Sprintf("docs/ARCHITECTURE.md does not name the package %s: say there what lives in it", p.path))
		}
	}
	return complaints
}

// TestPackagesAreNamedRed tests the check of TestPackagesAreNamed with pages that name the package and pages that do
// not.
func TestPackagesAreNamedRed(t *testing.T) {
	pkgs := loadFiles(t, map[string]string{"mqtt/memory/a.go": "package memory\n"})
	for page, want := range map[string]string{
		"": "does not name the package mqtt/memory", "what memory holds": "does not name",
		"`mqtt/memory`: a broker": "", "`mqtt`, `memory`": "",
	} {
		wantComplaint(t, unplaced(pkgs, page), want)
	}
}

// TestNamedFilesExist checks that every file, folder and test named in docs/ARCHITECTURE.md exists.
func TestNamedFilesExist(t *testing.T) {
	report(t, misnamed(os.DirFS(root), architecture(t)))
}

var (
	quoted   = regexp.MustCompile("`([^`\\s]+)`")
	testName = regexp.MustCompile(`^\w+\.Test\w+$`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// misnamed returns a message for each path in the page that does not exist, and for each test (written
// package.TestName) that does not exist.
func misnamed(fsys fs.FS, page string) []string {
	var complaints []string
	tests := testNames(fsys)
	for _, m := range quoted.FindAllStringSubmatch(page, -1) {
		name, isWrong := m[1], false
		// Skip module paths, whose first element contains a dot.
		if first, _, isPath := strings.Cut(name, "/"); isPath && !strings.Contains(first, ".") {
			_, err := fs.Stat(fsys, strings.TrimSuffix(name, "/"))
			isWrong = err != nil
		} else if testName.MatchString(name) {
			isWrong = !tests[name]
		}
		if isWrong {
			complaints = append(complaints,
				fmt.Sprintf("docs/ARCHITECTURE.md names %s, which does not exist: write its present name", name))
		}
	}
	return complaints
}

// testNames returns the names of all tests in the form folder.TestName.
func testNames(fsys fs.FS) map[string]bool {
	names := map[string]bool{}
	_ = fs.WalkDir(fsys, ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(fsys, file)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			names[path.Base(path.Dir(file))+"."+string(m[1])] = true
		}
		return err
	})
	return names
}

// TestNamedFilesExistRed tests misnamed with pages that contain right and wrong names.
func TestNamedFilesExistRed(t *testing.T) {
	fsys := fstest.MapFS{"wire/a_test.go": {Data: []byte("package wire\n\nfunc TestA(t *testing.T) {}\n")}}
	for page, want := range map[string]string{
		"`wire/a_test.go`, `wire/`, `wire.TestA`": "", "`example.org/a/b`": "", "`wire.A`": "",
		"`wire/b.go`": "names wire/b.go, which", "`wire.TestB`": "names wire.TestB",
		"`store.TestA`": "names store.TestA",
	} {
		wantComplaint(t, misnamed(fsys, page), want)
	}
}

// directDependencies returns the modules that go.mod requires directly.
func directDependencies(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) == 0 {
		t.Fatal("go.mod has no direct dependency: is this the module's folder?")
	}
	return direct
}

// unnamed reports module paths that the page does not contain as whole words.
func unnamed(modules []string, page string) []string {
	var complaints []string
	for _, m := range modules {
		if !regexp.MustCompile(`(^|[^\w./-])` + regexp.QuoteMeta(m) + `($|[^\w/-])`).MatchString(page) {
			complaints = append(complaints,
				fmt.Sprintf("docs/ARCHITECTURE.md does not name the dependency %s: say there what it is for", m))
		}
	}
	return complaints
}

// TestDependenciesAreNamedRed tests unnamed with pages that name the module and pages that do not.
func TestDependenciesAreNamedRed(t *testing.T) {
	modules := []string{"example.org/a/b"}
	for page, want := range map[string]string{
		"":                              "does not name the dependency example.org/a/b",
		"we use example.org/a":          "does not name",
		"we use example.org/a/b/v2":     "does not name",
		"we use example.org/a/bc":       "does not name",
		"we use `example.org/a/b`":      "",
		"it rests on example.org/a/b.":  "",
		"example.org/a/b: a thing or 2": "",
	} {
		wantComplaint(t, unnamed(modules, page), want)
	}
}
