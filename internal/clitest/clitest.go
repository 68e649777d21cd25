// Package clitest tests a program's command line. It also generates the manual pages and shell completions that
// packages contain. Only tests import it, so that no daemon links cobra/doc.
package clitest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/fedmesh/fedmesh/internal/cli"
)

// Run executes a program's command line in this process and returns its exit code and output.
func Run(root *cobra.Command, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	code = cli.Main(root, args)
	return code, out.String(), errs.String()
}

// Flags of the test binary: dir is the output folder of WriteManual, and date is the date that the manual pages show.
var (
	dir  = flag.String("manual", "", "write manual pages and completions into this folder")
	date = flag.String("manual.date", "1970-01-01", "the date on the manual pages")
)

// WriteManual writes the manual of a program into the folder of the test flag -manual, or into a temporary folder. It
// fails the test if a command has no short description.
func WriteManual(t *testing.T, root *cobra.Command) {
	t.Helper()
	to := *dir
	if to == "" {
		to = t.TempDir()
	}
	on, err := time.Parse(time.DateOnly, *date)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeManualAndCompletions(to, on, root); err != nil {
		t.Fatal(err)
	}
}

// writeManualAndCompletions writes man/*.1, markdown/*.md and completions/{bash,zsh,fish} into a folder.
func writeManualAndCompletions(dir string, on time.Time, root *cobra.Command) error {
	man, pages := filepath.Join(dir, "man"), filepath.Join(dir, "markdown")
	completions := filepath.Join(dir, "completions")
	if err := errors.Join(os.MkdirAll(man, 0o755), os.MkdirAll(pages, 0o755),
		os.MkdirAll(completions, 0o755)); err != nil {
		return err
	}
	if err := removeBuildDate(root); err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Date: &on, Source: "fedmesh", Manual: "fedmesh"}
	return errors.Join(
		doc.GenManTree(root, header, man),
		doc.GenMarkdownTree(root, pages),
		root.GenBashCompletionFileV2(filepath.Join(completions, "bash"), true),
		root.GenZshCompletionFile(filepath.Join(completions, "zsh")),
		root.GenFishCompletionFile(filepath.Join(completions, "fish"), true),
	)
}

// removeBuildDate disables the generation date in the manual pages of cmd and all subcommands. It returns an error for
// each command without a short description.
func removeBuildDate(cmd *cobra.Command) error {
	cmd.DisableAutoGenTag = true
	var err error
	if cmd.Short == "" {
		err = errors.New(cmd.CommandPath() + " has no short description (Short)")
	}
	for _, c := range cmd.Commands() {
		err = errors.Join(err, removeBuildDate(c))
	}
	return err
}
