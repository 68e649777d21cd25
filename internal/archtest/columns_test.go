package archtest

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestColumns checks that no Go line exceeds 120 columns, with tabs of width four. Raw strings may be longer.
func TestColumns(t *testing.T) {
	var complaints []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(root + "/" + path)
		complaints = append(complaints, tooLong(path, text)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	report(t, complaints)
}

const mostColumns = 120

// tooLong returns a message for each line of the file that exceeds the limit of 120 columns.
func tooLong(path string, text []byte) []string {
	quoted := inBackquotes(text)
	var complaints []string
	for i, line := range bytes.Split(text, []byte("\n")) {
		n := utf8.RuneCount(line) + 3*bytes.Count(line, []byte("\t"))
		if n > mostColumns && !quoted[i+1] {
			complaints = append(complaints,
				fmt.Sprintf("%s:%d: %d columns, want at most %d", path, i+1, n, mostColumns))
		}
	}
	return complaints
}

// inBackquotes returns the numbers of the lines that contain a part of a raw string.
func inBackquotes(text []byte) map[int]bool {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, func(token.Position, string) {}, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && literal[0] == '`' {
			first := file.Line(pos)
			for n := range strings.Count(literal, "\n") + 1 {
				lines[first+n] = true
			}
		}
	}
}

// TestColumnsRed checks that the column rule detects long lines and accepts short lines.
func TestColumnsRed(t *testing.T) {
	long := strings.Repeat("x", mostColumns-8)
	for text, want := range map[string]string{
		"package a\n\n// " + long + "y\n":                "",
		"package a\n\n// " + long + "123456\n":           "a.go:3: 121 columns",
		"package a\n\nvar a = 1 // " + long + "\n":       "a.go:3:",
		"package a\n\nconst a = `\n" + long + long + "`": "",
		"package a\n\nfunc a() {\n\t\t" + long + "1\n}":  "a.go:4: 121 columns",
	} {
		wantComplaint(t, tooLong("a.go", []byte(text)), want)
	}
}
