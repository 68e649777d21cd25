package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// follower reads a file that others append to. The last line of a plain file counts when it ends in a line break, or
// when the file has been still for a while.
type follower struct {
	path   string
	now    func() time.Time
	looked stamp // of the file at the last look
	still  bool  // the file was, at the last look
	open   bool  // its last line had no line break then
	read   place
}

// stillFor is how long a file must be unchanged until a last line without a line break counts.
const stillFor = 5 * time.Second

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
	stamp  stamp
	offset int64 // of the next row; 0 = nothing was read
	lines  int   // before it
	torn   bool  // there is no line break before it
	edges  [2][]byte
	tally
}

// isStill reports whether nobody has written for a while. A file from the future is not still.
func (f *follower) isStill(s stamp) bool { return s.info != nil && f.now().Sub(s.at) >= stillFor }

// changed reports whether there may be anything to read.
func (f *follower) changed() bool {
	s := stampOf(f.path)
	return !s.equal(f.looked) || f.open && !f.still && f.isStill(s)
}

// look reports whether there is anything to read.
func (f *follower) look() bool {
	f.looked = stampOf(f.path)
	f.still = f.isStill(f.looked)
	return f.looked.info == nil || !f.looked.equal(f.read.stamp) || f.open && f.still && !f.read.torn
}

// parser reads a text that begins at a place, and returns the tally there.
type parser func(text *counter, from place) (tally, error)

// follow hands parse what has come since f.read, and returns how far it was read. If that which was read before may
// have changed, it calls void with the reason and begins again.
func (f *follower) follow(void func(why string), parse parser) (to place, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return to, err
	}
	defer file.Close()
	from := f.read
	if from.offset > 0 {
		anew, err := f.unlike(file)
		if err != nil {
			return to, fmt.Errorf("%s: %w", f.path, err)
		}
		if anew != "" {
			void(anew)
			from = place{}
		}
	}
	return f.readFrom(file, from, parse)
}

// unlike says why what was read of the file may be in it no more; "" if it still is.
func (f *follower) unlike(file *os.File) (string, error) {
	was, now := f.read.stamp, f.looked
	switch {
	case !os.SameFile(was.info, now.info):
		return "another file has its name", nil
	case now.size < f.read.offset:
		return fmt.Sprintf("it was cut off from %d to %d bytes, after %d lines were read", was.size, now.size,
			f.read.lines), nil
	case now.equal(was): // its last line may count now
	case now.size == was.size || compressed(f.path):
		return "it was written again", nil
	}
	e, err := edges(file, f.read.offset)
	if err == nil && (!bytes.Equal(e[0], f.read.edges[0]) || !bytes.Equal(e[1], f.read.edges[1])) {
		return "it was written again", nil
	}
	if err == nil && f.read.torn {
		next := make([]byte, 2)
		n, err := file.ReadAt(next, f.read.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if next = next[:n]; !bytes.HasPrefix(next, []byte("\n")) && !bytes.Equal(next, []byte("\r\n")) {
			return "its last line was continued", nil
		}
	}
	return "", err
}

// readFrom reads from a place on: of a plain file, up to the last line that counts.
func (f *follower) readFrom(file *os.File, from place, parse parser) (to place, err error) {
	if compressed(f.path) {
		z, err := gzip.NewReader(file)
		if err != nil {
			return to, fmt.Errorf("%s: %w", f.path, err)
		}
		text := &counter{r: z}
		to.tally, err = parse(text, from)
		to.stamp, to.offset, to.lines = f.looked, f.looked.size, from.lines+text.lines
		return to, err
	}
	end, err := lastBreak(file, from.offset, f.looked.size)
	if err != nil {
		return to, fmt.Errorf("%s: %w", f.path, err)
	}
	f.open = end < f.looked.size
	switch {
	case end == 0 && f.open && f.still:
		return f.readBetween(file, from, f.looked.size, parse)
	case end == 0 && f.open:
		return to, &Error{File: f.path, Line: 1, Problem: "has no line break yet; it must name the columns"}
	}
	if to, err = f.readBetween(file, from, end, parse); err != nil || !f.open || !f.still {
		return to, err
	}
	whole, err := f.readBetween(file, to, f.looked.size, parse)
	if bad := (*Error)(nil); errors.As(err, &bad) {
		return to, nil // the line is not whole
	}
	return whole, err
}

// readBetween reads a plain file from a place up to an offset.
func (f *follower) readBetween(file io.ReaderAt, from place, end int64, parse parser) (to place, err error) {
	text := &counter{r: io.NewSectionReader(file, from.offset, end-from.offset)}
	to.tally, err = parse(text, from)
	to.stamp, to.offset, to.lines = f.looked, end, from.lines+text.lines
	if cut := end - from.offset - text.bytes; err == nil && cut > 0 {
		err = &Error{File: f.path, Line: to.lines + 1, Problem: "the file was cut off here while it was read"}
	}
	if err == nil {
		to.edges, err = edges(file, end)
		last := to.edges[1]
		to.torn = len(last) > 0 && last[len(last)-1] != '\n'
	}
	return to, err
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
