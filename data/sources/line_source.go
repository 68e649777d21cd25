package sources

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/spec"
)

// A line source reads the standard input, a named pipe or the output of a command. Each line is a JSON object, or a
// line of CSV that follows a header line.

const (
	// longestLine is the maximum length of a line in bytes.
	longestLine = 64 << 10
	// A command that has ended is restarted after a delay. The delay doubles from minRestartDelay to maxRestartDelay,
	// and is reset after a run longer than maxRestartDelay.
	minRestartDelay = time.Second
	maxRestartDelay = 5 * time.Minute
	// commandStopGrace is the time that a command gets to exit after an interrupt.
	commandStopGrace = 5 * time.Second
)

func checkLinesConfig(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require((c.LinesPath == "") != (len(c.Command) == 0), section+".lines",
		`set either lines (a named pipe, or "-" for standard input) or command`)
	spec.RequireOneOf(problems, section+".format", lineFormat(c), "csv", "json")
	rejectFileOnlyKeys(c, problems, section)
	rejectTopicKeys(c, problems, section)
	_, err := parsePayloadColumns(c)
	problems.AddError(section+".columns", err)
}

func lineFormat(c *data.Config) string { return cmp.Or(c.LineFormat, "json") }

func parsePayloadColumns(c *data.Config) (all []payloadColumn, err error) {
	for _, input := range slices.Sorted(maps.Keys(c.ColumnByInput)) {
		p, err := payload.MemberPath(c.ColumnByInput[input]), error(nil)
		if lineFormat(c) == "json" {
			p, err = payload.ParsePath(c.ColumnByInput[input])
		}
		if err == nil && c.ColumnByInput[input] == "" {
			err = errors.New("the field name is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", input, err)
		}
		all = append(all, payloadColumn{input: input, Column: payload.Column{Path: p}})
	}
	return all, nil
}

func openLines(c *data.Config) (data.Source, error) {
	columns, err := parsePayloadColumns(c)
	if err != nil {
		return nil, err
	}
	of, err := payloadTimeFieldFromConfig(c)
	if err != nil {
		return nil, err
	}
	if lineFormat(c) == "csv" && c.TimeColumn != "" {
		of.path = payload.MemberPath(c.TimeColumn)
	}
	l := &lineSource{inputPath: c.LinesPath, command: c.Command, linesAreCSV: lineFormat(c) == "csv",
		minRestartDelay: minRestartDelay,
		payloadParser:   payloadParser{columns: columns, timeField: of}}
	return &collectorSource{intake: l, rules: rows.ValueRulesFromConfig(c, nil),
		rowStorage: rows.StorageSettingsFromConfig(c)}, nil
}

// lineSource is a readingIntake that reads lines.
type lineSource struct {
	payloadParser
	inputPath            string // "-" or the path of a named pipe; empty means a command
	command              []string
	linesAreCSV          bool
	minRestartDelay      time.Duration
	header               []string  // column names in the header line of CSV
	widenedFieldCount    int       // number of fields after a column was added; 0 means none
	forbidsAddedColumns  bool      // whether lines must not have more fields than the header
	hasTrailingDelimiter bool      // whether a line ended with a delimiter; see csvRecordLayout.hasTrailingDelimiter
	widerLines           []csvLine // lines with more fields, until it is clear whether a column was added
	// insertedFieldNumber and recentRecords have the same meaning as in csvRecordLayout.
	insertedFieldNumber int
	recentRecords       recentCSVRecords

	mu        sync.Mutex
	openInput io.Closer // current input; closing it ends the reading
}

func (l *lineSource) probe() error {
	switch l.inputPath {
	case "-":
		return nil
	case "":
		_, err := exec.LookPath(l.command[0])
		return err
	}
	return checkNamedPipe(l.inputPath)
}

func checkNamedPipe(name string) error {
	info, err := os.Stat(name)
	if err == nil && info.Mode()&fs.ModeNamedPipe == 0 {
		err = fmt.Errorf("%s is not a named pipe; create one with: mkfifo %s", name, name)
	}
	return err
}

func (l *lineSource) beginIntake(r *readingRecorder) (end func() error, err error) {
	l.addReading, l.stats = r.recordReading, r.stats
	for _, c := range l.columns {
		l.stats.expectInput(c.input, "")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.readUntilCancelled(ctx, r.env.Now)
	}()
	return func() error {
		cancel()
		l.mu.Lock()
		if l.openInput != nil {
			_ = l.openInput.Close() // the error does not matter, because the input is only read
		}
		l.mu.Unlock()
		if l.inputPath != "-" { // reading the standard input ends only when the process ends
			<-done
		}
		return nil
	}, nil
}

// readUntilCancelled reads lines until ctx ends. An input that ends earlier is opened again.
func (l *lineSource) readUntilCancelled(ctx context.Context, now func() time.Time) {
	wait := l.minRestartDelay
	for ctx.Err() == nil {
		began := time.Now()
		err := l.readInputUntilEnd(ctx, now)
		if ctx.Err() != nil {
			return
		}
		l.stats.setTrouble(data.TroubleCommand, "", err)
		if l.inputPath == "-" {
			return
		}
		if time.Since(began) > maxRestartDelay {
			wait = l.minRestartDelay
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		wait = min(2*wait, maxRestartDelay)
	}
}

// readInputUntilEnd reads the input until it ends. It returns the reason for the end.
func (l *lineSource) readInputUntilEnd(ctx context.Context, now func() time.Time) error {
	l.header = nil
	switch l.inputPath {
	case "-":
		if err := l.readLines(os.Stdin, now); err != nil {
			return err
		}
		return errors.New("standard input was closed")
	case "":
		return l.runCommand(ctx, now)
	}
	err := checkNamedPipe(l.inputPath)
	if err != nil {
		return err
	}
	// If a pipe is also open for writing, reading does not end when a writer closes the pipe.
	f, err := os.OpenFile(l.inputPath, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	l.setOpenInput(f)
	defer l.setOpenInput(nil)
	return l.readLines(f, now)
}

func (l *lineSource) setOpenInput(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.openInput = c
}

// runCommand runs the command and reads its output. It returns the reason why the command has ended.
func (l *lineSource) runCommand(ctx context.Context, now func() time.Time) error {
	cmd := exec.CommandContext(ctx, l.command[0], l.command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = commandStopGrace
	var said commandOutputTail
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("command %s: %w", l.command[0], err)
	}
	read := l.readLines(out, now)
	if err = cmd.Wait(); err == nil {
		err = errors.New("the command exited with status 0")
	}
	if text := said.lastLine(); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return errors.Join(fmt.Errorf("command %s: %w", l.command[0], err), read)
}

// readLines reads lines until the end of the input. It rejects lines that are too long and an unterminated last line.
func (l *lineSource) readLines(from io.Reader, now func() time.Time) error {
	defer l.rejectWiderLines()
	r := bufio.NewReaderSize(from, longestLine)
	for n, long := 1, false; ; {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = true
			continue
		case long, err != nil && len(line) > 0:
			problem := fmt.Sprintf("the line is longer than %d bytes", longestLine)
			if !long {
				problem = data.QuoteForMessage(string(line)) + " has no line break"
			}
			l.rejectPayload(grid.ReasonMalformed, problem, fmt.Sprintf("line %d", n))
		case len(bytes.TrimSpace(line)) > 0:
			l.stats.setTrouble(data.TroubleCommand, "", nil)
			l.parseLine(bytes.TrimRight(line, "\r\n"), payloadMeta{place: fmt.Sprintf("line %d", n), receivedAt: now()})
		}
		n, long = n+1, false
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrClosed) {
				err = nil
			}
			return err
		}
	}
}

// parseLine parses a line and records its readings.
func (l *lineSource) parseLine(line []byte, from payloadMeta) {
	if !l.linesAreCSV {
		l.parseJSONLine(bytes.Trim(line, "\x00"), from)
		return
	}
	text := newTextLine(line, 0)
	if text.problem != "" {
		l.rejectPayload(grid.ReasonMalformed, text.problem, from.place)
		return
	}
	r := csvRecordReader{delimiter: ',', csvRecordLayout: csvRecordLayout{fieldCount: max(len(l.header),
		l.widenedFieldCount)}}
	if len(l.widerLines) > 0 && !l.hasTrailingDelimiter {
		r.fieldCount = len(l.widerLines[0].record)
	}
	r.parseLine(strings.TrimPrefix(data.UTF8Text(string(text.text)), "\ufeff"))
	record := slices.Clone(r.fields)
	l.hasTrailingDelimiter = l.hasTrailingDelimiter || r.hasTrailingDelimiter && l.header != nil
	switch n := len(record); {
	case isBlankRecord(record):
	case l.header == nil, l.isHeaderRecord(record): // the first line, or the header of another writer
		l.rejectWiderLines()
		l.header, l.widenedFieldCount, l.forbidsAddedColumns = r.setHeader(record), 0, false
		l.insertedFieldNumber, l.recentRecords = 0, recentCSVRecords{}
		l.stats.setTrouble(data.TroubleUnusedValues, "", nil)
	case n == len(l.header):
		if l.widenedFieldCount > 0 { // no column was added after all
			l.forbidsAddedColumns, l.widenedFieldCount = true, 0
			l.stats.setTrouble(data.TroubleUnusedValues, "", nil)
		}
		l.rejectWiderLines()
		l.recentRecords.addRecord(record)
		l.parseCSVRecord(record, from)
	case n == l.widenedFieldCount:
		l.parseCSVRecord(record, from)
	case n > len(l.header) && !l.forbidsAddedColumns && l.insertedFieldNumber == 0:
		if len(l.widerLines) > 0 && len(l.widerLines[0].record) != n {
			l.rejectWiderLines()
		}
		if l.widerLines = append(l.widerLines, csvLine{record, from}); len(l.widerLines) < minWiderLines {
			return
		}
		var wider [][]string
		for _, line := range l.widerLines {
			wider = append(wider, line.record)
		}
		if l.insertedFieldNumber = 1 + l.recentRecords.insertedFieldPosition(wider); l.insertedFieldNumber > 0 {
			l.rejectWiderLines()
			return
		}
		l.widenedFieldCount = n
		l.stats.setTrouble(data.TroubleUnusedValues, "", fmt.Errorf("%s: %s; %s", l.widerLines[0].payloadMeta.place,
			describeAddedFields(n,
				len(l.header)),
			addedFieldsAdvice))
		for _, line := range l.widerLines {
			l.parseCSVRecord(line.record, line.payloadMeta)
		}
		l.widerLines = nil
	default:
		l.rejectForFieldCount(csvLine{record, from})
	}
}

// csvLine is a line of CSV with its origin.
type csvLine struct {
	record      []string
	payloadMeta payloadMeta
}

// minWiderLines is the number of consecutive lines that indicate an added column: lines with the same number of fields,
// which is larger than the number of fields of the header.
const minWiderLines = 3

// isHeaderRecord reports whether a record contains the name of an input and, if configured, the name of the time.
func (l *lineSource) isHeaderRecord(record []string) bool {
	has := func(p payload.Path) bool {
		return len(p) > 0 && slices.ContainsFunc(record, func(f string) bool {
			return strings.TrimSpace(f) == p.FirstName()
		})
	}
	return (len(l.timeField.path) == 0 || has(l.timeField.path)) && slices.ContainsFunc(l.columns,
		func(c payloadColumn) bool { return has(c.Path) }) || slices.Equal(record, l.header)
}

// rejectWiderLines rejects the stored lines for which no added column was confirmed.
func (l *lineSource) rejectWiderLines() {
	for _, line := range l.widerLines {
		l.rejectForFieldCount(line)
	}
	l.widerLines = nil
}

// rejectForFieldCount rejects a line because of its number of fields.
func (l *lineSource) rejectForFieldCount(line csvLine) {
	l.rejectPayload(grid.ReasonMalformed, describeFieldCountProblem(len(line.record), len(l.header),
		l.insertedFieldNumber,
		strings.Join(line.record, ",")), line.payloadMeta.place)
}

// parseJSONLine parses a line that contains a JSON object.
func (l *lineSource) parseJSONLine(line []byte, from payloadMeta) {
	v, err := payload.ParseJSON(line)
	if err != nil {
		l.rejectPayload(grid.ReasonMalformed, err.Error(), from.place)
		return
	}
	from.sourceHash = l.readingSourceHash(v)
	l.addTree(v, from)
}

// parseCSVRecord converts a line of CSV to an object with one member per column, and records its readings.
func (l *lineSource) parseCSVRecord(record []string, from payloadMeta) {
	object := make(map[string]any, len(record))
	for i, name := range l.header {
		object[name] = payload.NumberOrText(record[i])
	}
	from.sourceHash = l.readingSourceHash(object)
	l.addTree(object, from)
}

// readingSourceHash returns a hash of the members that are neither the time nor an input. A radio receiver, for
// example, writes the ID of the sensor in such a member. If every member is an input, all lines have the same hash.
func (l *lineSource) readingSourceHash(v any) uint64 {
	object, _ := v.(map[string]any)
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(object)) {
		of := func(c payloadColumn) bool { return c.Path.FirstName() == name }
		if slices.ContainsFunc(l.columns, of) || len(l.timeField.path) > 0 && l.timeField.path.FirstName() == name ||
			len(l.columns) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(h, "%q=%v\x00", name, object[name]) // writing to a hash never returns an error
	}
	return h.Sum64()
}

// commandOutputTail keeps the end of a command's error output.
type commandOutputTail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *commandOutputTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 200
	t.text = append(t.text, p...)
	t.text = slices.Clone(t.text[max(0, len(t.text)-most):])
	return len(p), nil
}

// lastLine returns the last line of the output.
func (t *commandOutputTail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "?"))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
