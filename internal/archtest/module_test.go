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

// root is the relative path of the module's root folder.
const root = "../.."

// pkg is a package of the module. It excludes test files, because the rules do not apply to them.
type pkg struct {
	path  string // path inside the module, such as "mqtt/transfer"
	files []source
}

// source is a parsed Go file, for any platform. Test files are excluded.
type source struct {
	*ast.File
	fset *token.FileSet
}

// at formats the position of a node as file:line.
func (s source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return p.Filename + ":" + strconv.Itoa(p.Line)
}

// loadModule parses all packages of a module. It reads the files directly instead of calling `go list`, so it ignores
// build tags and accepts code that does not compile.
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

// enter reports whether a folder belongs to the module according to the rules of the go command.
func enter(fsys fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir // skip nested modules, such as tools
	}
	return nil
}

// loadHouse parses all packages of this module.
func loadHouse(t *testing.T) []pkg {
	t.Helper()
	pkgs := loadModule(t, os.DirFS(root))
	if len(pkgs) == 0 {
		t.Fatal("found no package: is this the module's folder?")
	}
	return pkgs
}

// loadFiles parses a module from a map of file names to file contents. Tests of the rules use it.
func loadFiles(t *testing.T, files map[string]string) []pkg {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return loadModule(t, fsys)
}

// importPath returns the unquoted path of an import.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic("archtest: the parser let through the import " + spec.Path.Value)
	}
	return p
}

// ours removes the module's path from an import, and reports whether the import belongs to the module.
func ours(imported string) (string, bool) {
	return strings.CutPrefix(imported, module+"/")
}

func report(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}

// wantComplaint checks that got contains exactly one message and that this message contains words. If words is empty,
// wantComplaint checks that got is empty.
func wantComplaint(t *testing.T, got []string, words string) {
	t.Helper()
	switch {
	case words == "" && len(got) > 0:
		t.Errorf("complains about good sources: %q", got)
	case words != "" && (len(got) != 1 || !strings.Contains(got[0], words)):
		t.Errorf("got complaints %q, want one that says %q", got, words)
	}
}
