// Command package builds the release files. For each program and CPU architecture it builds a .deb, an .rpm, an .apk, a
// tarball and a bill of materials (SBOM). For each service it builds an archive with container images of all
// architectures. It also builds the wheel and the sdist of the Python package, which requires
// access to PyPI, and a file of checksums. Builds are reproducible: the same commit gives the same bytes. The go
// command reads the version from git.
//
// This command is a separate Go module, so that the fedmesh module does not depend on the packaging libraries.
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
	out := flag.String("out", "dist", "the `folder` to fill; its old content is removed")
	names := flag.String("program", "", "`names` of programs, separated by commas (default: all)")
	archs := flag.String("arch", "", "`names` of processors, separated by commas (default: all)")
	kinds := flag.String("kind", "",
		"comma-separated `kinds` of files: any of deb, rpm, apk, tar, sbom, oci, python (default: all)")
	flag.Parse()
	if err := run(*root, *out, *names, *archs, *kinds); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

// run builds the release files of the repository at root and writes them to the folder out. names, archs and kinds
// select programs, architectures and file kinds.
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
	if slices.ContainsFunc(as, func(w writer) bool { return w.kind == "python" }) {
		if err := writePython(root, out, v); err != nil {
			return fmt.Errorf("python: %w", err)
		}
	}
	return writeSums(out)
}

// writePython builds the wheel and the sdist of the Python package in folder out.
func writePython(root, out string, v version) error {
	number, err := v.python()
	if err != nil {
		return err
	}
	_, err = output(exec.Command(filepath.Join(root, "tools", "wheel.sh"), out, number))
	return err
}

// writer writes one kind of release file, such as .deb packages.
type writer struct {
	kind     string
	write    func(p *program, b *binary, out string) error     // writes the file of one architecture; may be nil
	writeAll func(p *program, all []*binary, out string) error // writes one file for all architectures; may be nil
}

func (w writer) String() string { return w.kind }

var writers = []writer{{kind: "deb", write: writeDeb}, {kind: "rpm", write: writeRPM}, {kind: "apk", write: writeAPK},
	{kind: "tar", write: writeTarball}, {kind: "sbom", write: writeSBOM}, {kind: "oci", writeAll: writeImages},
	{kind: "python"}}

// release builds one program for the given targets and writes its release files. release returns the program's version.
func release(p *program, out, stage string, on []target, as []writer) (v version, err error) {
	var all []*binary
	for _, t := range on {
		b, err := build(p.root, filepath.Join(stage, p.name+"-"+t.name), p.name, t)
		if err != nil {
			return v, err
		}
		v, all = b.version, append(all, b)
		// Collect the additional files only once, because they are the same for all architectures.
		if p.files == nil {
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
	for _, w := range as {
		if w.writeAll == nil {
			continue
		}
		if err := w.writeAll(p, all, out); err != nil {
			return v, fmt.Errorf("%v: %w", w, err)
		}
	}
	return v, nil
}

// choose returns the elements of all whose names are in the comma-separated list names. An empty list selects all
// elements.
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
