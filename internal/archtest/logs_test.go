package archtest

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestLogMessages compares the log messages in the source of a daemon with testdata/log-PROGRAM.txt. A line contains
// the level, the message and the attribute names. Parts that are only known at run time are shown as "…".
func TestLogMessages(t *testing.T) {
	for _, program := range []string{"agentd", "coordinator"} {
		t.Run(program, func(t *testing.T) {
			got := strings.Join(logCalls(t, "./cmd/"+program), "\n") + "\n"
			file := "testdata/log-" + program + ".txt"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			before, now := strings.Split(string(want), "\n"), strings.Split(got, "\n")
			for _, line := range now {
				if !slices.Contains(before, line) {
					t.Errorf("%s lacks: %s", file, line)
				}
			}
			for _, line := range before {
				if !slices.Contains(now, line) {
					t.Errorf("no longer logged: %s", line)
				}
			}
			if t.Failed() {
				t.Log("if the change is intended: go test ./internal/archtest -run TestLogMessages -update")
			}
		})
	}
}

// logCalls returns the log calls of the packages of this module that a program links, sorted and without duplicates.
func logCalls(t *testing.T, program string) []string {
	t.Helper()
	var calls []string
	for _, p := range typeCheck(t, program) {
		calls = append(calls, logCallsIn(p)...)
	}
	slices.Sort(calls)
	return slices.Compact(calls)
}

// logCallsIn returns the log calls of one package.
func logCallsIn(p checkedPackage) []string {
	info := p.info
	// function returns the name of the called function of log/slog, or "".
	function := func(call *ast.CallExpr) string {
		name := call.Fun
		if selector, ok := name.(*ast.SelectorExpr); ok {
			name = selector.Sel
		}
		id, _ := name.(*ast.Ident)
		if f, ok := info.Uses[id].(*types.Func); ok && f.Pkg() != nil && f.Pkg().Path() == "log/slog" {
			return f.Name()
		}
		return ""
	}
	// describes reports whether the call is a call of observe.EventDescription.Log.
	describes := func(call *ast.CallExpr) bool {
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != "Log" {
			return false
		}
		f, ok := info.Uses[selector.Sel].(*types.Func)
		return ok && f.Pkg() != nil && f.Pkg().Path() == module+"/observe"
	}
	text := func(e ast.Expr) string { return constantText(info, e) }
	// keysOf returns the attribute names in the arguments of a log call. A name is every other argument, or the first
	// argument of a function such as slog.String.
	keysOf := func(args []ast.Expr) []string {
		var names []string
		for i := 0; i < len(args); i++ {
			attr, ok := args[i].(*ast.CallExpr)
			if ok && info.Types[attr].Type.String() == "log/slog.Attr" && function(attr) != "" {
				names = append(names, text(attr.Args[0]))
				continue
			}
			names = append(names, text(args[i]))
			i++
		}
		return names
	}
	// inSlices returns the names of attributes that a function first collects in a slice and then logs.
	inSlices := func(f *ast.FuncDecl) []string {
		var names []string
		ast.Inspect(f, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok || info.Types[e].Type == nil || info.Types[e].Type.String() != "[]any" {
				return true
			}
			switch e := e.(type) {
			case *ast.CompositeLit:
				names = append(names, keysOf(e.Elts)...)
			case *ast.CallExpr:
				if id, ok := e.Fun.(*ast.Ident); ok && id.Name == "append" && !e.Ellipsis.IsValid() {
					names = append(names, keysOf(e.Args[1:])...)
				}
			}
			return true
		})
		return names
	}
	var calls []string
	for _, file := range p.files {
		var within *ast.FuncDecl
		keys := func(args []ast.Expr, spread bool) string {
			if !spread {
				return strings.Join(keysOf(args), " ")
			}
			names := append(keysOf(args[:len(args)-1]), "…")
			return strings.Join(append(names, inSlices(within)...), " ")
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok {
				within = f
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			args, spread := call.Args, call.Ellipsis.IsValid()
			line := ""
			if describes(call) {
				line = fmt.Sprintf("%-5s %s | %s", levelText(info, args[0]), text(args[1]), keys(args[2:], spread))
			}
			switch name := function(call); name {
			case "Debug", "Info", "Warn", "Error":
				line = fmt.Sprintf("%-5s %s | %s", strings.ToUpper(name), text(args[0]), keys(args[1:], spread))
			case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
				level := strings.ToUpper(strings.TrimSuffix(name, "Context"))
				line = fmt.Sprintf("%-5s %s | %s", level, text(args[1]), keys(args[2:], spread))
			case "Log", "LogAttrs":
				line = fmt.Sprintf("%-5s %s | %s", levelText(info, args[1]), text(args[2]), keys(args[3:], spread))
			case "With":
				line = "with  | " + keys(args, spread)
			}
			if line != "" {
				calls = append(calls, strings.TrimRight(line, " |"))
			}
			return true
		})
	}
	return calls
}

// levelText returns the name of a log level, or "…" if the level is not known at compile time.
func levelText(info *types.Info, e ast.Expr) string {
	if v, ok := constant.Int64Val(cmp.Or(info.Types[e].Value, constant.MakeUnknown())); ok {
		return map[int64]string{-4: "DEBUG", 0: "INFO", 4: "WARN", 8: "ERROR"}[v]
	}
	return "…"
}

// constantText returns the parts of a string that are known at compile time, such as the format of fmt.Sprintf.
// constantText replaces other parts by "…".
func constantText(info *types.Info, e ast.Expr) string {
	if v := info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v)
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return constantText(info, e.X)
	case *ast.BinaryExpr:
		return constantText(info, e.X) + constantText(info, e.Y)
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" {
			return constantText(info, e.Args[0])
		}
	}
	return "…"
}
