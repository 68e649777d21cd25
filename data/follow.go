package data

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

func checkCSV(c *Config, problems *spec.Check, section string) {
	problems.Need(c.CSV != "", section+".csv", "is empty; want a CSV file with named columns")
	problems.Need(len(c.Columns) == 0 && c.TimeFormat == "" && c.TimeZone == "" && c.Lines == "" &&
		len(c.Command) == 0 && c.Format == "", section+".source",
		"is csv, with which columns, time_format, time_zone, lines, command and format do not go: remove them")
	problems.Need(c.Shares >= 0, section+".shares", "must not be negative, is %d", c.Shares)
	problems.Need(c.Share >= 0 && c.Share < max(c.Shares, 1), section+".share", "must be 0 to shares - 1, is %d of %d",
		c.Share, c.Shares)
}

func filesOfCSV(c *Config) map[string]string { return map[string]string{"csv": c.CSV} }

func openCSV(c *Config) (Source, error) {
	return csvFile{c.CSV, Filter{Where: c.Where, Share: c.Share, Shares: c.Shares, Time: c.Time}}, nil
}

// csvFile is a CSV file with named columns, which others may append to. Its last line is no row before it ends in a
// line break, unless the file is compressed.
type csvFile struct {
	path   string
	filter Filter
}

// Open implements Source.
func (f csvFile) Open(w Want) Rows { return &csvRows{csvFile: f, want: w} }

// Close implements Source. No file is open between two calls.
func (csvFile) Close() error { return nil }

// Probe implements Source.
func (f csvFile) Probe() (err error) {
	r, err := OpenFile(f.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if n, err := io.ReadFull(r, make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty", f.path)
	} else if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// csvRows follows the rows of a CSV file. A snapshot that fails changes nothing but looked.
type csvRows struct {
	csvFile
	want    Want
	looked  stamp // of the file at the last snapshot
	read    place
	table   *table    // of the header
	x, y    []float32 // the rows so far; views share their memory, and it is never changed
	times   []int64
	view    View   // the last one
	renewed string // why the rows of the last view were given up; until it is told
}

// stamp is what tells a file that has changed without reading it.
type stamp struct {
	info fs.FileInfo // nil if there was none
	size int64
	at   time.Time
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info, info.Size(), info.ModTime()}
}

func (s stamp) equal(o stamp) bool {
	if s.info == nil || o.info == nil {
		return s.info == o.info
	}
	return os.SameFile(s.info, o.info) && s.size == o.size && s.at.Equal(o.at)
}

// place is how far a file was read.
type place struct {
	stamp         stamp
	offset        int64 // of the next row; 0 = nothing was read
	lines         int   // before it
	rows, matched int   // before it: all, and those that the conditions select
	newest        int64 // time of these
	edges         [2][]byte
}

// Changed implements Rows.
func (r *csvRows) Changed() bool { return !stampOf(r.path).equal(r.looked) }

// Snapshot implements Rows.
func (r *csvRows) Snapshot() (View, error) {
	r.looked = stampOf(r.path)
	if r.looked.info == nil || !r.looked.equal(r.read.stamp) {
		if err := r.follow(); err != nil {
			return View{}, err
		}
	}
	if len(r.y) == 0 {
		err := noneSelected(r.path, r.read.rows)
		if r.read.offset < r.looked.size && !compressed(r.path) {
			err.Problem += ", and its last line has no line break yet"
		}
		if r.renewed != "" {
			err.Problem += "; " + r.renewed
		}
		return View{}, err
	}
	if r.renewed != "" || r.view.Rows == nil || r.view.Rows.Len() != len(r.y) {
		r.view = View{Version: r.view.Version + 1, Rows: learner.NewSamples(len(r.want.Features), r.x, r.y),
			Times: r.times, Renewed: r.renewed}
		r.renewed = ""
	}
	return r.view, nil
}

// follow reads what has come since the last time, or everything if what was read then may have changed.
func (r *csvRows) follow() error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer f.Close()
	from, anew := r.read, ""
	if from.offset > 0 {
		if anew, err = r.unlike(f); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
	if anew != "" {
		from = place{}
	}
	to, t, b, err := r.readFrom(f, from)
	if err != nil {
		return err
	}
	first := from.offset == 0 || len(r.y) == 0
	if s := learner.NewSamples(len(r.want.Features), b.x, b.y); r.want.Prepare != nil && s.Len() > 0 {
		if err := r.want.Prepare(s, first); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
	r.read, r.table = to, t
	if !first {
		r.x, r.y, r.times = append(r.x, b.x...), append(r.y, b.y...), append(r.times, b.times...)
		return nil
	}
	if !starts(b.x, r.x) || !starts(b.y, r.y) || !starts(b.times, r.times) {
		r.renewed = fmt.Sprintf("%s: %s; its rows are read anew, up to line %d", r.path, anew, to.lines)
	}
	r.x, r.y, r.times = b.x, b.y, b.times
	return nil
}

// unlike says why what was read of the file may be in it no more; "" if it still is.
func (r *csvRows) unlike(f *os.File) (string, error) {
	was, now := r.read.stamp, r.looked
	switch {
	case !os.SameFile(was.info, now.info):
		return "another file has its name", nil
	case now.size < r.read.offset:
		return fmt.Sprintf("it was cut off from %d to %d bytes, after %d lines were read", was.size, now.size,
			r.read.lines), nil
	case now.size == was.size || compressed(r.path):
		return "it was written again", nil
	}
	e, err := edges(f, r.read.offset)
	if err == nil && (!bytes.Equal(e[0], r.read.edges[0]) || !bytes.Equal(e[1], r.read.edges[1])) {
		return "it was written again", nil
	}
	return "", err
}

// readFrom reads the rows from a place on: of a plain file, up to the last line break.
func (r *csvRows) readFrom(f *os.File, from place) (to place, t *table, b *batch[float32], err error) {
	if compressed(r.path) {
		z, err := gzip.NewReader(f)
		if err != nil {
			return to, t, b, fmt.Errorf("%s: %w", r.path, err)
		}
		to, t, b, err = r.parse(&counter{r: z}, from)
		to.offset = r.looked.size
		return to, t, b, err
	}
	end, err := lastBreak(f, from.offset, r.looked.size)
	if err != nil {
		return to, t, b, fmt.Errorf("%s: %w", r.path, err)
	}
	if end == 0 && r.looked.size > 0 {
		return to, t, b, &Error{File: r.path, Line: 1, Problem: "has no line break yet; it must name the columns"}
	}
	return r.readBetween(f, from, end)
}

// readBetween reads the rows of a plain file from a place up to an offset.
func (r *csvRows) readBetween(f io.ReaderAt, from place, end int64) (to place, t *table, b *batch[float32], err error) {
	text := &counter{r: io.NewSectionReader(f, from.offset, end-from.offset)}
	to, t, b, err = r.parse(text, from)
	if cut := end - from.offset - text.bytes; err == nil && cut > 0 {
		err = &Error{File: r.path, Line: from.lines + text.lines + 1,
			Problem: "the file was cut off here while it was read"}
	}
	if err == nil {
		to.edges, err = edges(f, end)
	}
	to.offset = end
	return to, t, b, err
}

// parse reads all rows of a text, which begins at a place.
func (r *csvRows) parse(text *counter, from place) (to place, t *table, b *batch[float32], err error) {
	c := csv.NewReader(text)
	t, b = r.table, &batch[float32]{rows: from.rows, matched: from.matched, newest: from.newest}
	if from.offset == 0 {
		if t, err = readHeader(c, r.path, r.want.Features, r.want.Target, r.filter); err != nil {
			return to, t, b, err
		}
	}
	err = b.read(c, t, from.lines)
	to = place{stamp: r.looked, lines: from.lines + text.lines, rows: b.rows, matched: b.matched, newest: b.newest}
	return to, t, b, err
}

// starts reports whether v starts with these elements.
func starts[E comparable](v, with []E) bool {
	return len(v) >= len(with) && slices.Equal(v[:len(with)], with)
}

// counter counts the bytes that are read, and the line breaks among them.
type counter struct {
	r     io.Reader
	bytes int64
	lines int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.bytes += int64(n)
	c.lines += bytes.Count(p[:n], []byte{'\n'})
	return n, err
}

// edgeBytes is how much of a file is held against what was there, at its beginning and before the next row.
const edgeBytes = 4 << 10

// edges returns the first and the last bytes of those before an offset.
func edges(f io.ReaderAt, offset int64) (e [2][]byte, err error) {
	n := min(offset, edgeBytes)
	for i, at := range []int64{0, offset - n} {
		e[i] = make([]byte, n)
		if _, err := f.ReadAt(e[i], at); err != nil && !errors.Is(err, io.EOF) {
			return e, err
		}
	}
	return e, nil
}

// lastBreak returns the offset after the last line break between two offsets; from if there is none.
func lastBreak(f io.ReaderAt, from, to int64) (int64, error) {
	piece := make([]byte, edgeBytes)
	for to > from {
		n := min(to-from, edgeBytes)
		if _, err := f.ReadAt(piece[:n], to-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(piece[:n], '\n'); i >= 0 {
			return to - n + int64(i) + 1, nil
		}
		to -= n
	}
	return from, nil
}
