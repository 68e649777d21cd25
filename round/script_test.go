package round_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// player runs one state machine as the commands of a test script require.
type player interface {
	// play performs a script command and returns the resulting effects. It panics if the command is unknown.
	play(now time.Time, c command) []any
	deadline() (time.Time, bool)
}

// anys converts the effects of either state machine to a common type, for printing.
func anys[E any](effects []E) []any {
	all := make([]any, len(effects))
	for i, e := range effects {
		all[i] = e
	}
	return all
}

// command is one line of a test script: a name, words, and key=value options.
type command struct {
	name  string
	words []string
	opts  map[string]string
}

func (c command) word(i int) string {
	if i >= len(c.words) {
		panic(fmt.Sprintf("%s: word %d is missing", c.name, i+1))
	}
	return c.words[i]
}

func (c command) opt(key, byDefault string) string {
	if v, ok := c.opts[key]; ok {
		return v
	}
	return byDefault
}

func (c command) num(key string, byDefault uint64) uint64 {
	n, err := strconv.ParseUint(c.opt(key, fmt.Sprint(byDefault)), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// figure parses an option of a script command as a number. It returns nil if the command does not have the option.
func (c command) figure(key string) *float64 {
	x, err := strconv.ParseFloat(c.opts[key], 64)
	if err != nil {
		return nil
	}
	return &x
}

func (c command) span(key, byDefault string) time.Duration { return span(c.opt(key, byDefault)) }

func span(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// pick returns the element of all whose String method returns s, or the zero value if there is none.
func pick[E fmt.Stringer](s string, all ...E) (e E) {
	for _, e := range all {
		if strings.ReplaceAll(e.String(), " ", "_") == s {
			return e
		}
	}
	if s != "" {
		panic("no such name: " + s)
	}
	return e
}

func parseCommand(line string) command {
	words := strings.Fields(line)
	c := command{name: words[0], opts: map[string]string{}}
	for _, w := range words[1:] {
		if key, v, ok := strings.Cut(w, "="); ok {
			c.opts[key] = v
		} else {
			c.words = append(c.words, w)
		}
	}
	return c
}

// TestTranscripts runs every script in testdata and compares the output with the output recorded in the script. A
// script contains comments (#), commands, optionally after "at TIME", and their indented output. "until TIME" advances
// past the machine's own deadlines.
func TestTranscripts(t *testing.T) {
	for folder, begin := range map[string]func(*testing.T) player{
		"coordinator": func(t *testing.T) player { return &coordinatorPlayer{t: t} },
		"agent":       func(t *testing.T) player { return &agentPlayer{t: t} },
	} {
		files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no scripts in testdata/%s: %v", folder, err)
		}
		for _, file := range files {
			t.Run(folder+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				script, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				got := playScript(t, string(script), begin(t))
				if got == string(script) {
					return
				}
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
					return
				}
				t.Errorf("%s: the transcript differs (go test ./round -update rewrites it):\n%s", file,
					firstDifference(string(script), got))
			})
		}
	}
}

func playScript(t *testing.T, script string, p player) string {
	var out strings.Builder
	now := dawn
	for _, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		if strings.HasPrefix(line, "    ") {
			continue // Skip the recorded output in the script.
		}
		out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "at "); ok {
			when, rest, _ := strings.Cut(rest, " ")
			now, line = dawn.Add(span(when)), rest
		}
		c := parseCommand(line)
		if c.name == "new" {
			now = dawn
			p.play(now, c)
			continue
		}
		if c.name == "until" {
			end := dawn.Add(span(c.word(0)))
			for at, ok := p.deadline(); ok && !at.After(end); at, ok = p.deadline() {
				now = at
				fmt.Fprintf(&out, "    - at %s\n", now.Sub(dawn))
				perform(t, &out, now, p, command{name: "tick"})
			}
			now = end
			continue
		}
		perform(t, &out, now, p, c)
	}
	return out.String()
}

// perform runs a script command and writes the command's output. It also writes the machine's next deadline if the
// deadline has changed.
func perform(t *testing.T, out *strings.Builder, now time.Time, p player, c command) {
	before, _ := p.deadline()
	for _, e := range p.play(now, c) {
		fmt.Fprintf(out, "    %s\n", show(e))
	}
	switch after, ok := p.deadline(); {
	case ok && !after.After(now):
		t.Fatalf("after %q at %s the machine wants a tick at %s: the host would spin", c.name, now.Sub(dawn),
			after.Sub(dawn))
	case !after.Equal(before) && ok:
		fmt.Fprintf(out, "    (wake at %s)\n", after.Sub(dawn).Round(time.Millisecond))
	case !after.Equal(before):
		fmt.Fprintf(out, "    (sleep)\n")
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; ; i++ {
		a, b := "<end>", "<end>"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n  file: %s\n  now:  %s", i+1, a, b)
		}
	}
}

func blob(s string) wire.BlobRef { return wire.BlobRef{Hash: name(s), Length: 1} }

// ids parses a list of agents in a script, such as "a1,a2" or "a1..a5".
func ids(s string) []wire.AgentID {
	var all []wire.AgentID
	for _, part := range strings.Split(s, ",") {
		first, last, ok := strings.Cut(part, "..")
		if !ok {
			all = append(all, wire.AgentID(part))
			continue
		}
		from, err1 := strconv.Atoi(first[1:])
		to, err2 := strconv.Atoi(last[1:])
		if err1 != nil || err2 != nil {
			panic("no range of ids: " + part)
		}
		for i := from; i <= to; i++ {
			all = append(all, wire.AgentID(fmt.Sprint(first[:1], i)))
		}
	}
	return all
}
