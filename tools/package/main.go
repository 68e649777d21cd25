// Command package makes what we release: for each program and processor a
// .deb, an .rpm, an .apk, a tarball and a bill of materials; the wheel and the
// sdist of the Python package, for which it needs PyPI; and the checksums of
// all. The same commit gives the same bytes, in any folder and at any time. The
// version is the one that the go command reads from git.
//
// It has a module of its own, so that what it needs never enters the one of
// the programs.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", ".", "the `folder` of the repository")
	out := flag.String("out", "dist", "the `folder` to fill; what it held is removed")
	names := flag.String("program", "", "`names` of programs, separated by commas (default: all)")
	archs := flag.String("arch", "", "`names` of processors, separated by commas (default: all)")
	kinds := flag.String("kind", "",
		"`kinds` of files, separated by commas, of deb, rpm, apk, tar, sbom, python (default: all)")
	flag.Parse()
	if err := run(*root, *out, *names, *archs, *kinds); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

// run fills out with what is released of the repository at root.
func run(root, out, names, archs, kinds string) error {
	of, err := choose(programs, names)
	if err != nil {
		return err
	}
	on, err := choose(targets, archs)
	if err != nil {
		return err
	}
	as, err := choose(writers, kinds)
	if err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "fedmesh-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var v version
	for _, p := range of {
		p.root = root
		if v, err = release(&p, out, stage, on, as); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if slices.ContainsFunc(as, func(w writer) bool { return w.write == nil }) {
		if err := writePython(root, out, v); err != nil {
			return fmt.Errorf("python: %w", err)
		}
	}
	return writeSums(out)
}

// writePython writes the wheel and the sdist.
func writePython(root, out string, v version) error {
	number, err := v.python()
	if err != nil {
		return err
	}
	_, err = output(exec.Command(filepath.Join(root, "tools", "wheel.sh"), out, number))
	return err
}

// writer writes one kind of file.
type writer struct {
	kind  string
	write func(p *program, b *binary, out string) error // nil of what is no program's
}

func (w writer) String() string { return w.kind }

var writers = []writer{{"deb", writeDeb}, {"rpm", writeRPM}, {"apk", writeAPK}, {"tar", writeTarball},
	{"sbom", writeSBOM}, {kind: "python"}}

// release makes everything of one program, and returns its version.
func release(p *program, out, stage string, on []target, as []writer) (v version, err error) {
	for _, t := range on {
		b, err := build(p.root, filepath.Join(stage, p.name+"-"+t.name), p.name, t)
		if err != nil {
			return v, err
		}
		v = b.version
		if p.files == nil { // the first: the rest of the files is the same for all processors
			if err := p.gather(filepath.Join(stage, p.name), b); err != nil {
				return v, err
			}
		}
		for _, w := range as {
			if w.write == nil {
				continue
			}
			if err := w.write(p, b, out); err != nil {
				return v, fmt.Errorf("%v for %v: %w", w, t, err)
			}
		}
	}
	return v, nil
}

// choose returns those of all whose names are in a list, or all.
func choose[T fmt.Stringer](all []T, names string) ([]T, error) {
	if names == "" {
		return all, nil
	}
	var chosen []T
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(one T) bool { return one.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q, only %v", name, all)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
