package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// clockReads lists the functions of package time that read the clock or wait. The types time.Time and time.Duration are
// allowed, because callers pass in their values.
var clockReads = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// builtFor lists the constants of package runtime that describe the build. Other names in package runtime describe the
// current machine and are forbidden.
var builtFor = []string{"GOARCH", "GOOS"}

// injectedRandomness lists the names of math/rand and math/rand/v2 that do not use the global random source.
var injectedRandomness = []string{"Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf", "New", "NewSource", "NewPCG",
	"NewChaCha8", "NewZipf"}

// TestPurity checks that protocol state machines and mathematical packages do not use clocks, goroutines, I/O or global
// randomness.
func TestPurity(t *testing.T) {
	report(t, impurities(loadHouse(t)))
}

// TestNoGlobalRandomness checks that no package uses the global random source, because its results are not
// reproducible.
func TestNoGlobalRandomness(t *testing.T) {
	report(t, globalRandomness(loadHouse(t)))
}

// impurities returns a message for each forbidden operation in a pure package. A pure package may import only pure
// packages of this module, so the rule is transitive.
func impurities(pkgs []pkg) []string {
	var complaints []string
	for _, p := range pkgs {
		if here, _ := roomOf(p.path); !here.pure {
			continue
		}
		for _, file := range p.files {
			complaints = append(complaints, impureFile(p.path, file)...)
		}
	}
	return complaints
}

func impureFile(pkgPath string, file source) []string {
	var complaints []string
	complain := func(n ast.Node, format string, args ...any) {
		complaints = append(complaints,
			fmt.Sprintf("%s: pure package %s %s", file.at(n), pkgPath, fmt.Sprintf(format, args...)))
	}
	for _, spec := range file.Imports {
		imported := importPath(spec)
		if target, own := ours(imported); own {
			if there, _ := roomOf(target); !there.pure {
				complain(spec, "imports %s, which is not pure", target)
			}
			continue
		}
		for _, rule := range impureImports {
			if matches(rule.path, imported) {
				complain(spec, "imports %s: %s", imported, rule.why)
			}
		}
		if spec.Name != nil && spec.Name.Name == "." {
			complain(spec, "dot-imports %s, which hides its calls from this test", imported)
		}
	}
	for _, use := range selectors(file, "time") {
		if slices.Contains(clockReads, use.Sel.Name) {
			complain(use, "uses time.%s: take the time as an argument", use.Sel.Name)
		}
	}
	for _, use := range selectors(file, "runtime") {
		if !slices.Contains(builtFor, use.Sel.Name) {
			complain(use, "uses runtime.%s: the result must not depend on the machine it runs on", use.Sel.Name)
		}
	}
	ast.Inspect(file.File, func(n ast.Node) bool {
		if stmt, ok := n.(*ast.GoStmt); ok {
			complain(stmt, "starts a goroutine: return an effect")
		}
		return true
	})
	return complaints
}

// globalRandomness returns a message for each use of the global random source of math/rand or math/rand/v2.
func globalRandomness(pkgs []pkg) []string {
	var complaints []string
	for _, p := range pkgs {
		for _, file := range p.files {
			for _, imported := range []string{"math/rand", "math/rand/v2"} {
				for _, use := range selectors(file, imported) {
					if !slices.Contains(injectedRandomness, use.Sel.Name) {
						complaints = append(complaints,
							fmt.Sprintf("%s: %s draws from the global source with rand.%s: take a *rand.Rand",
								file.at(use), p.path, use.Sel.Name))
					}
				}
			}
		}
	}
	return complaints
}

// selectors returns all expressions `name.Something` in a file, where name is the local name of the imported package.
// It also returns selectors of a local variable with the same name, because it does not resolve identifiers.
func selectors(file source, imported string) []*ast.SelectorExpr {
	name := ""
	for _, spec := range file.Imports {
		if importPath(spec) != imported {
			continue
		}
		name = path.Base(strings.TrimSuffix(imported, "/v2"))
		if spec.Name != nil {
			name = spec.Name.Name
		}
	}
	var found []*ast.SelectorExpr
	ast.Inspect(file.File, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && name != "" && x.Name == name {
			found = append(found, sel)
		}
		return true
	})
	return found
}
