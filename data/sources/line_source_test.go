//go:build linux || darwin

package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

func TestCheckLines(t *testing.T) {
	for _, tt := range []struct {
		c    data.Config
		want string // expected error; empty for a valid configuration
	}{
		{data.Config{LinesPath: "-"}, ""},
		{data.Config{Command: []string{"x"}, LineFormat: "csv", ColumnByInput: map[string]string{"a": "T (°C)..."}},
			""},
		{data.Config{}, "data.lines: set either lines"},
		{data.Config{LinesPath: "-", Command: []string{"x"}}, "data.lines: set either lines"},
		{data.Config{LinesPath: "-", LineFormat: "xml"}, "data.format: "},
		{data.Config{LinesPath: "-", ColumnByInput: map[string]string{"a": "x..y"}}, `data.columns: input "a": the ` +
			`JSON path "x..y"`},
		{data.Config{LinesPath: "-", ColumnByInput: map[string]string{"a": ""}}, `input "a": the field name is empty`},
		{data.Config{LinesPath: "-", TimeZone: "Nowhere"}, "data.time: unknown time zone"},
		{data.Config{LinesPath: "-", RequiredTextByColumn: map[string]string{"a": "b"}},
			"data.where: the keys where, share and shares are only valid with"},
	} {
		var problems spec.ProblemList
		tt.c.Source = data.SourceLines
		CheckConfig(&tt.c, &problems, "data")
		err := problems.Err()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.c, err, tt.want)
		}
	}
}

// linesOf starts a line source with a short restart delay.
func linesOf(t *testing.T, c data.Config) *collectorSource {
	t.Helper()
	c.Source = data.SourceLines
	s, err := Open(&c)
	if err != nil {
		t.Fatal(err)
	}
	s.(*collectorSource).intake.(*lineSource).minRestartDelay = time.Millisecond
	if err := s.Probe(); err != nil {
		t.Fatal(err)
	}
	if err := s.(data.ReadingCollector).Start(envAt(t.TempDir())); err != nil {
		t.Fatal(err)
	}
	return s.(*collectorSource)
}

// await waits until the source has received the given number of values. It then closes the source and returns the
// recorded readings.
func await(t *testing.T, s *collectorSource, values uint64) (texts []string, columns []data.ColumnReport) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := uint64(0); n < values; <-tick.C {
		n = 0
		for _, c := range s.recorder.stats.columnReports() {
			n += c.Used
			for _, unused := range c.Unused {
				n += unused
			}
		}
	}
	columns = s.recorder.stats.columnReports()
	mustClose(t, s)
	r := record(t, s.recorder.env)
	for _, reading := range come(t, r.newReadingFeed(nil)) {
		texts = append(texts, fmt.Sprint(reading.Input, " ", reading.Value, reading.Text))
	}
	mustClose(t, closing(r.close))
	return texts, columns
}

// closing is a source that implements only the method Close.
type closing func() error

func (closing) OpenRows(data.RowQuery) data.QueriedRows { return nil }
func (closing) Probe() error                            { return nil }
func (c closing) Close() error                          { return c() }

// TestCommand checks the lines of a command that ends with an error and is restarted.
func TestCommand(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	s := linesOf(t, data.Config{Command: []string{"/bin/sh", "-c", `
		echo '{"temp": 20.5, "wind": "N"}'; echo '{"temp"'; echo; printf '{"temp": 21}'
		echo >>"$0"; [ $(wc -l <"$0") = 1 ] || exec sleep 1000; exit 3`, count},
		ColumnByInput: map[string]string{"temp": "temp", "wind": "wind"}})
	// The last line has no line break, and the last line of the second run may still arrive.
	texts, columns := await(t, s, 10)
	if want := []string{"temp 20.5", "wind NaNN", "temp 20.5", "wind NaNN"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	if c := columns[1]; c.Name != "wind" || c.Unused[grid.ReasonMalformed] != 3 || c.LastUnusedWhere != "line 2" {
		t.Errorf("%+v", c)
	}
}

// TestCommandFails checks that a command that cannot be started or has ended is reported, with the last line of its
// error output.
func TestCommandFails(t *testing.T) {
	for command, want := range map[string]string{
		"/no/such": "command: command /no/such: fork/exec /no/such: no such file or directory",
		"/bin/sh":  "command: command /bin/sh: exit status 3: no more sensors",
	} {
		l := &lineSource{command: []string{command, "-c", "echo a >&2; echo no more sensors >&2; exit 3"}}
		err := l.readInputUntilEnd(t.Context(), time.Now)
		if err == nil || !strings.Contains("command: "+err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
	c := data.Config{Source: data.SourceLines, Command: []string{"/no/such"}}
	s, err := Open(&c)
	if err == nil {
		err = s.Probe()
	}
	if err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("probe: %v", err)
	}
}

// TestPipe checks lines of CSV from several writers of a pipe, each of which writes a header.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s := linesOf(t, data.Config{LinesPath: path, LineFormat: "csv", TimeColumn: "t",
		ColumnByInput: map[string]string{"temp": "T (°C)", "wind": "wd"}})
	for i := range 2 {
		text := fmt.Sprintf("\ufefft,T (°C),wd,note\n177236640%d,2%d,\"N,E\",\"x\"\r\n", i, i)
		if i == 1 {
			text = strings.TrimPrefix(text, "\ufeff") + strings.Repeat("x", longestLine+5) + "\n1772366405,23,,\n1,2\n"
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	texts, columns := await(t, s, 2*5)
	if want := []string{"temp 20", "wind NaNN,E", "temp 21", "wind NaNN,E", "temp 23"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	if c := columns[1]; c.Name != "wind" || c.Unused[grid.ReasonMalformed] != 2 || c.Unused[grid.ReasonMissing] != 1 ||
		c.LastUnusedWhere != "line 7" {
		t.Errorf("%+v", c)
	}
}

// TestPipeComes checks that a missing pipe, or a file that is not a pipe, is reported until a pipe exists.
func TestPipeComes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	c := data.Config{Source: data.SourceLines, LinesPath: path}
	s, err := Open(&c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("probe: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(); err == nil || !strings.Contains(err.Error(), "is not a named pipe; create one with: "+
		"mkfifo "+path) {
		t.Errorf("probe: %v", err)
	}
	of := s.(*collectorSource)
	of.intake.(*lineSource).minRestartDelay = time.Millisecond
	if err := of.Start(envAt(t.TempDir())); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for len(of.recorder.stats.currentTroubles(nil)) == 0 {
		<-tick.C
	}
	wantTroubles(t, of, nil, "command: "+path+" is not a named pipe")
	if err = os.Remove(path); err == nil {
		err = syscall.Mkfifo(path, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"a":1,"b":"x","n":null}` + "\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for len(of.recorder.stats.columnReports()) < 2 {
		<-tick.C
	}
	wantTroubles(t, of, nil)
	mustClose(t, of)
}

// TestLinesOfCSV checks CSV lines with trailing delimiters, an added column, another header, and damage.
func TestLinesOfCSV(t *testing.T) {
	for name, tt := range map[string]struct {
		text      string
		want      string
		malformed uint64
	}{
		"a comma at some ends": {"temp,hum,\n1,2,\n3,4\n5,6,\n", "1 2 3 4 5 6", 0},
		"a column more":        {"temp,hum\n1,2\n3,4,9\n5,6,\n7,8,9\n10,11,\n", "1 2 3 4 5 6 7 8 10 11", 0},
		"a comma in a note":    {"temp,hum,note\n1,2,a\n3,4,b,c\n5,6,d,e\n7,8,f\n", "1 2 7 8", 2},
		"wider lines that do not stay": {"temp,hum\n1,2\n3,4,9\n5,6,9\n7,8,9\n1,1\n2,2,2\n3,3\n",
			"1 2 3 4 5 6 7 8 1 1 3 3", 1},
		"wider lines at the end": {"temp,hum\n1,2\n3,4,9\n5,6,9\n", "1 2", 2},
		"a column inserted": {"temp,hum\n1,500\n2,501\n1,500\n3,502\n7,2,500\n8,2,501\n9,1,500\n8,1,501\n2,501\n",
			"1 500 2 501 1 500 3 502 2 501", 4},
		"another header": {"temp,hum\n1,2\nhum,x,temp\n4,9,3\n", "1 2 3 4", 0},
		"half a line":    {"temp,hum\n1,2\n3,4\x00\x00\n\x00\x005,6\n", "1 2 5 6", 1},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "text")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := linesOf(t, data.Config{Command: []string{"/bin/sh", "-c", `cat "$0"; exec sleep 1000 >&-`, file},
				LineFormat: "csv", ColumnByInput: map[string]string{"temp": "temp", "hum": "hum"}})
			texts, columns := await(t, s, uint64(len(strings.Fields(tt.want)))+2*tt.malformed)
			var got []string
			for i := range texts {
				_, v, _ := strings.Cut(texts[i], " ")
				got = append(got, strings.TrimSuffix(v, " "))
			}
			// The readings of a line are sorted by input name: hum, temp.
			want := strings.Fields(tt.want)
			for i := 0; i+1 < len(want); i += 2 {
				want[i], want[i+1] = want[i+1], want[i]
			}
			if !slices.Equal(got, want) || columns[0].Unused[grid.ReasonMalformed] != tt.malformed {
				t.Errorf("%q, %v; want %q and %d malformed", got, columns, want, tt.malformed)
			}
		})
	}
}
