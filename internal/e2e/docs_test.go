package e2e

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

const root = "../../"

// shown is a block of commands on a documentation page.
type shown struct {
	page   string
	line   int // line number of the first command
	lines  []string
	notRun []string // prefixes of lines that the test does not run; "" matches all lines
}

var (
	fence = regexp.MustCompile("^ *```(sh|console)$")
	mark  = regexp.MustCompile(`^<!-- not run(?: \(([^)]+)\))?: .+ -->$`)
	// joined matches the operators that separate commands on one line: && and |.
	joined = regexp.MustCompile(` && | \| `)
	// hidden matches a command outside a code block marked sh. Such a command would be neither run nor marked as not
	// run.
	hidden = regexp.MustCompile(`^ *(sudo |\S+ \| )?(bin/)?(agentd|coordinator|fedlab|make|go) [a-z]`)
)

// blocks returns the command blocks of all pages.
func blocks(t *testing.T) (all []shown) {
	t.Helper()
	pages := []string{root + "README.md", root + "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/howto/*.md", "packaging/*/README.md"} {
		found, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		page = strings.TrimPrefix(page, root)
		all = append(all, blocksOf(page, string(text))...)
		for i, line := range outside(string(text)) {
			if hidden.MatchString(line) {
				t.Errorf("%s:%d: %s: commands stand in a block of sh", page, i+1, strings.TrimSpace(line))
			}
		}
	}
	return all
}

// outside yields the code lines of a page that are not in code blocks marked sh: indented lines and lines of other
// blocks.
func outside(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		block, sh := false, false
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				block, sh = !block, fence.MatchString(line)
				continue
			}
			code := block || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
			if code && (!block || !sh) && !yield(i, line) {
				return
			}
		}
	}
}

// blocksOf returns the command blocks of a page. A comment above a block marks the lines that the test does not run.
// `<!-- not run: it needs root -->` marks all lines of the block, and `<!-- not run (make): … -->` marks the lines that
// begin with make.
func blocksOf(page, text string) (all []shown) {
	var marks []string
	inside := false
	for i, line := range strings.Split(text, "\n") {
		m := mark.FindStringSubmatch(line)
		switch last := len(all) - 1; {
		case inside && strings.TrimSpace(line) == "```":
			inside = false
		case inside && strings.HasSuffix(strings.Join(all[last].lines, ""), `\`):
			whole := &all[last].lines[len(all[last].lines)-1]
			*whole = strings.TrimSuffix(*whole, `\`) + strings.TrimSpace(line)
		case inside:
			all[last].lines = append(all[last].lines, strings.TrimSpace(line))
		case fence.MatchString(line):
			all = append(all, shown{page: page, line: i + 2, notRun: marks})
			inside, marks = true, nil
		case m != nil:
			marks = append(marks, m[1])
		case strings.TrimSpace(line) != "":
			marks = nil
		}
	}
	return all
}

// runs reports whether the test runs the given line of the block.
func (b *shown) runs(line string) bool {
	return !slices.ContainsFunc(b.notRun, func(begin string) bool { return strings.HasPrefix(line, begin) })
}

// command returns a line without its trailing comment.
func command(line string) string {
	before, _, _ := strings.Cut(line+" ", " # ")
	return strings.TrimSpace(before)
}

// TestPages runs the commands of each documentation page in order, in a separate folder per page. It also checks that
// the subcommands, flags and make targets of all commands exist, including commands that are marked as not run.
func TestPages(t *testing.T) {
	t.Parallel()
	byPage := map[string][]shown{}
	for _, b := range blocks(t) {
		byPage[b.page] = append(byPage[b.page], b)
		for _, line := range b.lines {
			checkWords(t, &b, command(line))
		}
	}
	if len(byPage) < 8 {
		t.Errorf("%d pages show commands", len(byPage))
	}
	for page, all := range byPage {
		t.Run(page, func(t *testing.T) {
			r := newReader(t)
			for i := range all {
				for j, line := range all[i].lines {
					if all[i].runs(line) && command(line) != "" {
						r.do(t, fmt.Sprintf("%s:%d", page, all[i].line+j), command(line))
					}
				}
			}
		})
	}
}

// checkWords runs each command of a line with --help instead of executing it. The help fails if a flag or a subcommand
// is unknown.
func checkWords(t *testing.T, b *shown, line string) {
	t.Helper()
	for _, part := range joined.Split(line, -1) {
		words := strings.Fields(part)
		for len(words) > 0 && (words[0] == "sudo" || words[0] == "-u" || words[0] == "coordinator" && len(words) > 1 &&
			words[1] == "coordinator") {
			words = words[1:]
		}
		if len(words) > 2 && words[0] == "go" && words[1] == "run" {
			words = append([]string{filepath.Base(words[2])}, words[3:]...)
		}
		if len(words) == 0 {
			continue
		}
		if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, ">") }); i > 0 {
			words = words[:i]
		}
		switch program := filepath.Base(words[0]); {
		case program == "make":
			out, err := exec.Command("make", append([]string{"-C", root, "-n"}, words[1:]...)...).CombinedOutput()
			if err != nil {
				t.Errorf("%s:%d: %s: %v\n%s", b.page, b.line, part, err, out)
			}
		case strings.HasPrefix(words[0], "/") || !slices.Contains([]string{"agentd", "coordinator", "fedlab"}, program):
		default:
			code, help, stderr := programs.Run(t, program, append(words[1:], "--help")...)
			if code != 0 || strayed(words, help) {
				t.Errorf("%s:%d: %s: exit status %d\n%s%s", b.page, b.line, part, code, help, stderr)
			}
		}
	}
}

// strayed reports whether the help text belongs to a group of commands that has no subcommand with the next word's
// name. In this case the command does not exist.
func strayed(words []string, help string) bool {
	_, usage, _ := strings.Cut(help, "Usage:\n")
	line, _, _ := strings.Cut(usage, "\n")
	var plain, path int
	for plain < len(words) && !strings.HasPrefix(words[plain], "-") {
		plain++
	}
	for _, word := range strings.Fields(line) {
		if strings.HasPrefix(word, "[") {
			break
		}
		path++
	}
	return strings.Contains(usage, "Available Commands:") && plain > path
}

// reader executes the commands of a page in a folder with the files that the pages mention.
type reader struct {
	dir     string
	path    string   // value of PATH, with the folder of the programs
	options []string // settings of the daemons, as environment variables
	printed string   // public key that was printed by the last command that created a key
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{dir: t.TempDir()}
	bin, err := filepath.Abs(string(programs))
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "docs/SIMULATION.md")
	if err != nil {
		t.Fatal(err)
	}
	_, experiment, _ := strings.Cut(string(page), "```yaml\n")
	experiment, _, _ = strings.Cut(experiment, "```")
	rows := deviceRows(rand.New(rand.NewPCG(1, 1)), 1, founded[0].target)
	for name, text := range map[string][]byte{"sample.csv": rows, "measured.csv": rows,
		"lab.yaml": bytes.Replace([]byte(experiment), []byte("rounds: 1000"), []byte("rounds: 20"), 1)} {
		if err := os.WriteFile(filepath.Join(r.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"bin": bin, "lab": filepath.Join(here, "lab")} {
		if err := os.Symlink(to, filepath.Join(r.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	broker := brokers.OpenMosquitto(t)
	r.path = "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")
	r.options = []string{ // configure rounds without pauses
		"COORDINATOR_ROUND_PAUSE=0s", "COORDINATOR_METRICS_LISTEN=", "COORDINATOR_BROKER_URL=" + broker,
		"AGENTD_BROKER_URL=" + broker}
	return r
}

var daemon = regexp.MustCompile(`^(bin/)?(agentd|coordinator) run `)

// do runs a command, or starts it in the background if it is a daemon. do waits for a coordinator's run to finish.
func (r *reader) do(t *testing.T, at, line string) {
	t.Helper()
	line = strings.ReplaceAll(line, "go run ./cmd/fedlab", "fedlab")
	line = regexp.MustCompile(`PUBLIC-KEY[A-Z0-9-]*`).ReplaceAllString(line, r.printed)
	line = regexp.MustCompile(`^python3 `).ReplaceAllString(line, "/usr/bin/python3 ")
	if daemon.MatchString(line) {
		cmd := exec.Command("/bin/sh", "-c", "exec "+line)
		cmd.Dir, cmd.Env = r.dir, append(append(os.Environ(), r.path), r.options...)
		if strings.Contains(line, "agentd run") { // agentd expects the files in the working folder
			copyFile(t, filepath.Join(r.dir, "air", "agentd.yaml"), filepath.Join(r.dir, "agentd.yaml"))
		}
		p := testkit.Start(t, cmd)
		if strings.Contains(line, "coordinator run") {
			p.Await(t, "run finished")
		}
		return
	}
	ctx, done := context.WithTimeout(t.Context(), 3*testkit.Patience)
	defer done()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.dir, append(os.Environ(), r.path), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s", at, line, err, out)
	}
	if strings.Contains(line, " key new ") {
		r.printed = strings.TrimSpace(string(out))
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
