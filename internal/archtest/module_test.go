package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// root is the module's folder, seen from this package's.
const root = "../.."

// pkg is one folder with Go files. Its test files are not looked at: tests may do what they like.
type pkg struct {
	path  string // inside the module: "mqtt/transfer"
	files []source
}

// source is one parsed non-test file, whatever platform it is for.
type source struct {
	*ast.File
	fset *token.FileSet
}

// at renders a position as file:line.
func (s source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return p.Filename + ":" + strconv.Itoa(p.Line)
}

// loadModule parses every package of a module. It reads files and not `go list`, so that build tags hide nothing and
// a tree that does not compile can still be checked.
func loadModule(t *testing.T, fsys fs.FS) []pkg {
	t.Helper()
	fset := token.NewFileSet()
	found := map[string]*pkg{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return enter(fsys, name)
		case path.Ext(name) != ".go":
			return nil
		}
		dir := path.Dir(name)
		if found[dir] == nil {
			found[dir] = &pkg{path: dir}
		}
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		found[dir].files = append(found[dir].files, source{file, fset})
		return nil
	})
	if err != nil {
		t.Fatalf("cannot read the module's sources: %v", err)
	}
	var pkgs []pkg
	for _, p := range found {
		pkgs = append(pkgs, *p)
	}
	sort.Slice(pkgs, func(i, j int) bool { return pkgs[i].path < pkgs[j].path })
	return pkgs
}

// enter decides whether a folder belongs to the module, by the go command's own rules.
func enter(fsys fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir // a module of its own, as the tools have
	}
	return nil
}

// loadHouse parses this module.
func loadHouse(t *testing.T) []pkg {
	t.Helper()
	pkgs := loadModule(t, os.DirFS(root))
	if len(pkgs) == 0 {
		t.Fatal("found no package: is this the module's folder?")
	}
	return pkgs
}

// loadFiles parses a module given as file name and text, for the tests that must see a rule red.
func loadFiles(t *testing.T, files map[string]string) []pkg {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return loadModule(t, fsys)
}

// importPath is the unquoted path of an import.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic("archtest: the parser let through the import " + spec.Path.Value)
	}
	return p
}

// ours cuts the module's path off an import, and tells whether it was there.
func ours(imported string) (string, bool) {
	return strings.CutPrefix(imported, module+"/")
}

// report fails the test with one error a complaint.
func report(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}

// wantComplaint fails unless there is exactly one complaint and it holds the given words; with no words, unless there
// is none.
func wantComplaint(t *testing.T, got []string, words string) {
	t.Helper()
	switch {
	case words == "" && len(got) > 0:
		t.Errorf("complains about good sources: %q", got)
	case words != "" && (len(got) != 1 || !strings.Contains(got[0], words)):
		t.Errorf("got complaints %q, want one that says %q", got, words)
	}
}
