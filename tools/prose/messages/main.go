// Command messages writes the message strings of Go files as text, so that a prose linter can read them: log messages,
// errors, conditions with their remedies, help texts of commands, and descriptions of metrics. A message is an
// interpreted string literal, or a sum of literals, of at least four words. For DIR/x.go the command writes
// OUT/DIR/x.go.md, with each message on the line of its source.
//
//	messages OUT FILE...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// minWords is the smallest number of words of a string literal that is treated as a message. Shorter literals are
// names, keys and formats.
const minWords = 4

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: messages OUT FILE...")
		os.Exit(2)
	}
	for _, path := range os.Args[2:] {
		if err := extract(os.Args[1], path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func extract(out, path string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	textByLine := map[int]string{}
	var inside ast.Expr // sum of literals whose parts are already extracted
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok || inside != nil && e.Pos() < inside.End() {
			return true
		}
		if text, ok := constantText(e); ok && len(strings.Fields(text)) >= minWords {
			inside = e
			textByLine[files.Position(e.Pos()).Line] += sentences(text) + " "
		}
		return true
	})
	if len(textByLine) == 0 {
		return nil
	}
	var b strings.Builder
	for line := 1; line <= files.Position(file.End()).Line; line++ {
		// End each message with a full stop, since an empty line would shift the line numbers.
		b.WriteString(strings.TrimRight(textByLine[line], ". "))
		if textByLine[line] != "" {
			b.WriteString(".")
		}
		b.WriteString("\n")
	}
	target := filepath.Join(out, path+".md")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, []byte(b.String()), 0o644)
}

// sentences joins the lines of a message. It replaces indented lines, which are examples of commands, by a full stop.
func sentences(text string) string {
	var joined strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			joined.WriteString(".")
			continue
		}
		joined.WriteString(" " + strings.Join(strings.Fields(line), " "))
	}
	return strings.TrimSpace(joined.String())
}

// constantText returns the value of an interpreted string literal, or of a sum that contains such a literal. In the
// result of a sum, "…" replaces the operands that are not constant.
func constantText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING && e.Value[0] == '"' {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, leftIsText := constantText(e.X)
		right, rightIsText := constantText(e.Y)
		if !leftIsText {
			left = "…"
		}
		if !rightIsText {
			right = "…"
		}
		return left + right, e.Op == token.ADD && (leftIsText || rightIsText)
	}
	return "…", false
}
