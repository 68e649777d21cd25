package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// follower reads a file, or several ones, that others append to. The last line of a plain file counts when it ends in a
// line break, or when the file has been still for a while.
type follower struct {
	path string // of a file; a pattern such as log-*.csv; or a folder
	now  func() time.Time
	// first returns the time of the first row of a text, if it has a row. nil = rows have no time.
	first  func(text io.Reader) (at int64, found bool)
	looked []stamp // of the files at the last look, in the order of their names
	read   progress
}

// stillFor is how long a file must be unchanged until a last line without a line break counts.
const stillFor = 5 * time.Second

// stamp is what tells a file that has changed without reading it.
type stamp struct {
	path string
	info fs.FileInfo
	size int64
	at   time.Time
	// still reports that nobody has written for a while.
	still bool
}

func (s stamp) equal(o stamp) bool {
	return s.path == o.path && os.SameFile(s.info, o.info) && s.size == o.size && s.at.Equal(o.at)
}

// progress is how far the files were read.
type progress struct {
	files []place // in the order in which they were begun
	tally
}

// place is how far a file was read.
type place struct {
	stamp  stamp
	plain  bool  // it can be read on from the offset
	open   bool  // its last line has no line break, and was not read
	torn   bool  // there is no line break before the offset
	offset int64 // of the next row; 0 = nothing was read
	lines  int   // before it
	edges  [2][]byte
	table  *table // of its header
	width  int    // fields of its last lines
	// regular reports that a line had as many fields as the header: only then may a column have been added.
	regular bool
	index   int // of the file, from 0, among all that were begun since the follower began anew
}

// lineBits are the bits of a line number that count lines. The file's index is above them.
const lineBits = 32

// number returns a number for a line of the file, which increases over files.
func (p *place) number(line int) int64 { return int64(p.index)<<lineBits | int64(line) }

// where names the place with a number.
func (p *progress) where(number int64) string {
	for _, f := range p.files {
		if int64(f.index) == number>>lineBits {
			return fmt.Sprintf("%s: line %d", f.stamp.path, number&(1<<lineBits-1))
		}
	}
	return ""
}

// several reports whether a path stands for files, and not for one.
func several(path string) bool {
	if strings.ContainsAny(filepath.Base(path), "*?[") {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// textFiles are the endings of the files that are read in a folder.
var textFiles = []string{".csv", ".tsv", ".txt", ".dat", ".log", ".gz"}

// pathsOf returns the files that a path names, in the order of their names: the file itself, the files that match a
// pattern, or the files in a folder with an ending of textFiles. Hidden and temporary files are left out.
func pathsOf(path string) ([]string, error) {
	if !several(path) {
		return []string{path}, nil
	}
	pattern, folder := path, false
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		pattern, folder = filepath.Join(path, "*"), true
	}
	all, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: write a [ of a name as \\[", path, err)
	}
	all = slices.DeleteFunc(all, func(path string) bool {
		name := filepath.Base(path)
		info, err := os.Stat(path)
		return err != nil || info.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") ||
			strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".part") ||
			folder && !slices.Contains(textFiles, strings.ToLower(filepath.Ext(name)))
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no file matches: %w", path, fs.ErrNotExist)
	}
	return all, nil
}

// stamps looks at the files. A file from the future is not still.
func (f *follower) stamps() (all []stamp) {
	paths, err := pathsOf(f.path)
	if err != nil {
		return nil
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			at := info.ModTime()
			all = append(all, stamp{path, info, info.Size(), at, f.now().Sub(at) >= stillFor})
		}
	}
	return all
}

// changed reports whether there may be anything to read. It is cheap.
func (f *follower) changed() bool {
	now := f.stamps()
	if !slices.EqualFunc(now, f.looked, stamp.equal) {
		return true
	}
	for i, s := range now {
		if p := f.read.place(s.path); s.still && !f.looked[i].still && (p == nil || p.open) {
			return true
		}
	}
	return false
}

// place returns how far a file was read; nil if it was not begun.
func (p *progress) place(path string) *place {
	for i := len(p.files) - 1; i >= 0; i-- { // the last one of this name
		if p.files[i].stamp.path == path {
			return &p.files[i]
		}
	}
	return nil
}

// look reports whether there is anything to read.
func (f *follower) look() bool {
	f.looked = f.stamps()
	if len(f.looked) == 0 {
		return true // which fails
	}
	for _, s := range f.looked {
		if p := f.read.place(s.path); p == nil || !s.equal(p.stamp) || p.open && s.still {
			return true
		}
	}
	return false
}

// parser reads a text that begins at a place, and changes place and tally to those behind it.
type parser func(text *counter, at *place, y *tally) error

// follow hands parse what has come since f.read, and returns how far was read. If what was read before may have
// changed, it calls void with the reason and begins again.
func (f *follower) follow(void func(why string), parse parser) (to progress, err error) {
	if len(f.looked) == 0 {
		paths, err := pathsOf(f.path)
		if err == nil {
			var text io.ReadCloser
			if text, err = OpenFile(paths[0]); err == nil { // it is there again: the next look finds it
				err = errors.Join(fmt.Errorf("%s is being replaced", paths[0]), text.Close())
			}
		}
		return to, err
	}
	fresh, why, err := f.compare()
	if err != nil {
		return to, err
	}
	if to = (progress{slices.Clone(f.read.files), f.read.clone()}); why != "" {
		void(why)
		to = progress{}
	}
	for _, s := range f.looked {
		p := to.place(s.path)
		if p == nil || fresh[s.path] {
			to.files = append(to.files, place{stamp: stamp{path: s.path}, index: len(to.files)})
			p = &to.files[len(to.files)-1]
		} else if s.equal(p.stamp) && (!p.open || !s.still) {
			continue
		}
		if err := readOn(s, p, &to.tally, parse); err != nil {
			return to, err
		}
	}
	return to, nil
}

// compare holds the files against what was read of them. It returns the paths under which another file goes on behind
// what was read, or why all has to be read again.
func (f *follower) compare() (fresh map[string]bool, why string, err error) {
	fresh = map[string]bool{}
	for i, s := range f.looked {
		p := f.read.place(s.path)
		if p == nil {
			for _, later := range f.looked[i+1:] {
				if f.read.place(later.path) != nil {
					return nil, fmt.Sprintf("the file %s came before others that were read", s.path), nil
				}
			}
			continue
		}
		if p.offset == 0 || s.equal(p.stamp) {
			continue
		}
		changed, err := p.unlike(s)
		if err != nil {
			return nil, "", err
		}
		if changed == "" {
			continue
		}
		if f.first == nil {
			return nil, changed, nil
		}
		first, found, err := f.firstTime(s.path)
		switch {
		case err != nil:
			return nil, "", err
		case found && first <= f.read.newest:
			return nil, changed, nil
		case !found:
			f.looked = slices.Clone(f.looked)
			f.looked[i] = p.stamp // it has no row yet: what was read stays
		default:
			fresh[s.path] = true
		}
	}
	return fresh, "", nil
}

// firstTime returns the time of the first row of a file, if it has a row.
func (f *follower) firstTime(path string) (at int64, found bool, err error) {
	text, err := OpenFile(path)
	if err != nil {
		return 0, false, err
	}
	defer text.Close()
	at, found = f.first(text)
	return at, found, nil
}

// unlike says why what was read of the file may be in it no more; "" if it still is.
func (p *place) unlike(now stamp) (string, error) {
	was := p.stamp
	switch {
	case !os.SameFile(was.info, now.info):
		return "another file has its name", nil
	case now.size < p.offset:
		return fmt.Sprintf("it was cut off from %d to %d bytes, after %d lines were read", was.size, now.size,
			p.lines), nil
	case now.equal(was): // its last line may count now
	case now.size == was.size || !p.plain:
		return "it was written again", nil
	}
	file, err := os.Open(now.path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	e, err := edges(file, p.offset)
	if err == nil && (!bytes.Equal(e[0], p.edges[0]) || !bytes.Equal(e[1], p.edges[1])) {
		return "it was written again", nil
	}
	if err == nil && p.torn {
		next := make([]byte, 2)
		n, err := file.ReadAt(next, p.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s: %w", now.path, err)
		}
		if next = next[:n]; !bytes.HasPrefix(next, []byte("\n")) && !bytes.Equal(next, []byte("\r\n")) {
			return "its last line was continued", nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", now.path, err)
	}
	return "", nil
}

// readOn reads a file from a place on. In a plain file it stops after the last line that counts.
func readOn(s stamp, p *place, y *tally, parse parser) error {
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer file.Close()
	var text io.Reader
	if p.offset == 0 {
		if text, p.plain, err = plainText(s.path, file); err != nil {
			return err
		}
	}
	p.stamp = s
	if !p.plain {
		c := &counter{r: text}
		err = parse(c, p, y)
		p.offset, p.lines = s.size, c.lines
		return err
	}
	end, err := lastBreak(file, p.offset, s.size)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	p.open = end < s.size
	switch {
	case end == 0 && p.open && s.still:
		p.open = false
		return readTo(file, s.size, p, y, parse)
	case end == 0 && p.open:
		return &Error{File: s.path, Line: 1, Problem: "has no line break yet; it must name the columns"}
	}
	if err := readTo(file, end, p, y, parse); err != nil || !p.open || !s.still {
		return err
	}
	at, before := *p, y.clone()
	if err := readTo(file, s.size, p, y, parse); err != nil || y.malformed == before.malformed {
		p.open = false
		return err
	}
	*p, *y = at, before // the line is not whole
	return nil
}

// readTo reads a plain file from a place up to an offset.
func readTo(file io.ReaderAt, end int64, p *place, y *tally, parse parser) error {
	text := &counter{r: io.NewSectionReader(file, p.offset, end-p.offset)}
	if err := parse(text, p, y); err != nil {
		return err
	}
	cut := end - p.offset - text.bytes
	p.offset, p.lines = end, p.lines+text.lines
	if cut > 0 {
		return &Error{File: p.stamp.path, Line: p.lines + 1, Problem: "the file was cut off here while it was read"}
	}
	var err error
	p.edges, err = edges(file, end)
	last := p.edges[1]
	p.torn = len(last) > 0 && last[len(last)-1] != '\n'
	return err
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
