package sources

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
)

// fileFollower reads one or several files to which other programs append. The last line of a plain file is read when it
// ends with a line break, or when the file has not changed for minUnchangedAge.
type fileFollower struct {
	path string // path of a file or folder, or a pattern such as log-*.csv
	now  func() time.Time
	// parseFirstRowTime returns the time of the first row of a text. found is false if the text has no row. It is nil
	// if rows have no time.
	parseFirstRowTime func(text io.Reader) (at int64, found bool)
	lastStamps        []fileStamp // stamps of the files at the last call of updateStamps, sorted by name
	progress          readProgress
	// noAddedColumnsByPath contains the paths of files in which lines with more fields than the header have no added
	// column.
	noAddedColumnsByPath map[string]bool
}

// minUnchangedAge is the time that a file must remain unchanged before a last line without a line break is read.
const minUnchangedAge = 5 * time.Second

// fileStamp contains the properties of a file by which a change is detected without reading it.
type fileStamp struct {
	path       string
	info       fs.FileInfo
	size       int64
	modifiedAt time.Time
	// isUnchangedLongEnough means that the file has not been written for minUnchangedAge.
	isUnchangedLongEnough bool
}

func (s fileStamp) equal(o fileStamp) bool {
	return s.path == o.path && os.SameFile(s.info, o.info) && s.size == o.size && s.modifiedAt.Equal(o.modifiedAt)
}

// readProgress describes how much of the files has been read.
type readProgress struct {
	files []readPosition // positions in the order in which the files were started
	csvReadCounts
}

// readPosition is the position up to which a file has been read.
type readPosition struct {
	stamp fileStamp
	// isResumable is true if reading can continue at the offset. It is false for compressed or converted files.
	isResumable               bool
	hasUnreadUnterminatedLine bool           // whether the last line has no line break and was not read
	hasReadUnterminatedLine   bool           // whether a last line without a line break was read
	offset                    int64          // offset of the next line in bytes; 0 means that nothing was read
	lineCount                 int            // number of lines before the offset
	firstAndLastBytes         [2][]byte      // first and last bytes before offset, to detect changes
	table                     *columnMapping // column mapping of the header
	csvRecordLayout
	widenedAtLine       int   // number of the first line with an added column; 0 means none
	forbidsAddedColumns bool  // whether lines must not have more fields than the header
	hasLaterFile        bool  // whether a later file exists, so that this file is complete
	readErr             error // reason why the file or its end cannot be read
	fileIndex           int   // number of files started before this one

	readBytes int64 // number of bytes and lines that were parsed since the offset
	readLines int
}

// lineBits is the number of bits for the line in a sequence number. The higher bits contain the index of the file.
const lineBits = 32

// sequenceNumber returns a number for a line. Lines of later files have higher numbers.
func (p *readPosition) sequenceNumber(line int) int64 {
	return int64(p.fileIndex)<<lineBits | int64(line)
}

// describeLine returns the file name and the line of a sequence number, or "" if the file is unknown.
func (p *readProgress) describeLine(number int64) string {
	for _, f := range p.files {
		if int64(f.fileIndex) == number>>lineBits {
			return fmt.Sprintf("%s: line %d", f.stamp.path, number&(1<<lineBits-1))
		}
	}
	return ""
}

// mayMatchManyFiles reports whether path is a pattern or a folder, rather than the path of a single file.
func mayMatchManyFiles(path string) bool {
	if info, err := os.Stat(path); err == nil { // a single file may be named export[1].csv, like a pattern
		return info.IsDir()
	}
	return strings.ContainsAny(filepath.Base(path), "*?[")
}

// dataFileExtensions lists the extensions of the files that are read in a folder.
var dataFileExtensions = []string{".csv", ".tsv", ".txt", ".dat", ".log", ".gz"}

// expandPath returns path itself if it is a single file. Otherwise it returns the files that match the pattern, or the
// files in the folder that have one of dataFileExtensions, sorted by name. Hidden and temporary files are excluded. It
// returns an error if no file is found.
func expandPath(path string) ([]string, error) {
	if !mayMatchManyFiles(path) {
		return []string{path}, nil
	}
	pattern, folder := path, false
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		pattern, folder = filepath.Join(path, "*"), true
	}
	all, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: write \\[ to match the character [", path, err)
	}
	all = slices.DeleteFunc(all, func(path string) bool {
		name := filepath.Base(path)
		info, err := os.Stat(path)
		return err != nil || info.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") ||
			strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".part") ||
			folder && !slices.Contains(dataFileExtensions, strings.ToLower(filepath.Ext(name)))
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no file matches: %w", path, fs.ErrNotExist)
	}
	return all, nil
}

// currentStamps returns the current stamps of the files. A file with a modification time in the future is not
// considered unchanged.
func (f *fileFollower) currentStamps() (all []fileStamp) {
	paths, err := expandPath(f.path)
	if err != nil {
		return nil
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			at := info.ModTime()
			all = append(all, fileStamp{path, info, info.Size(), at, f.now().Sub(at) >= minUnchangedAge})
		}
	}
	return all
}

// haveFilesChanged reports whether new data may exist. It does not read the files.
func (f *fileFollower) haveFilesChanged() bool {
	now := f.currentStamps()
	if !slices.EqualFunc(now, f.lastStamps, fileStamp.equal) {
		return true
	}
	for i, s := range now {
		if p := f.progress.filePosition(s.path); s.isUnchangedLongEnough && !f.lastStamps[i].isUnchangedLongEnough &&
			(p == nil ||
				p.hasUnreadUnterminatedLine) {
			return true
		}
	}
	return false
}

// filePosition returns the position in the file with the given path, or nil if reading of the file has not begun.
func (p *readProgress) filePosition(path string) *readPosition {
	for i := len(p.files) - 1; i >= 0; i-- { // search backwards for the latest file with this path
		if p.files[i].stamp.path == path {
			return &p.files[i]
		}
	}
	return nil
}

// updateStamps updates the stamps and reports whether readNewData has to be called.
func (f *fileFollower) updateStamps() bool {
	f.lastStamps = f.currentStamps()
	if len(f.lastStamps) == 0 {
		return true // readNewData will return the error
	}
	for _, s := range f.lastStamps {
		if p := f.progress.filePosition(s.path); p == nil || !s.equal(p.stamp) || p.hasUnreadUnterminatedLine &&
			s.isUnchangedLongEnough {
			return true
		}
	}
	return false
}

// textParser parses a text that starts at the position at, and updates y. It sets the fields of at that depend on the
// content.
type textParser func(text *countingReader, at *readPosition, y *csvReadCounts) error

// readNewData passes the data added since f.progress to parse, and returns the new progress. If old data may have
// changed, it calls void with the reason and reads all files from the start. If one of several files cannot be read, it
// is skipped and reported.
func (f *fileFollower) readNewData(void func(why string), parse textParser) (to readProgress, err error) {
	var unread error
	if len(f.lastStamps) == 0 {
		paths, err := expandPath(f.path)
		if err == nil {
			var text io.ReadCloser
			if text, err = OpenTextFile(paths[0]); err == nil { // the file exists again and is read at the next check
				err = errors.Join(fmt.Errorf("%s is being replaced; it will be read at the next check", paths[0]),
					text.Close())
			}
		}
		return to, err
	}
	rotated, why, err := f.compareFilesWithProgress()
	if err != nil {
		return to, err
	}
	if to = (readProgress{slices.Clone(f.progress.files), f.progress.clone()}); why != "" {
		void(why)
		to, f.noAddedColumnsByPath = readProgress{}, nil
	}
	for again := true; again; {
		again = false
		for i, s := range f.lastStamps {
			p := to.filePosition(s.path)
			if p == nil || rotated[s.path] {
				to.files = append(to.files, readPosition{stamp: fileStamp{path: s.path}, fileIndex: len(to.files)})
				p = &to.files[len(to.files)-1]
			} else if s.equal(p.stamp) && (!p.hasUnreadUnterminatedLine || !s.isUnchangedLongEnough) {
				continue
			}
			p.forbidsAddedColumns, p.hasLaterFile, p.readErr = f.noAddedColumnsByPath[s.path], i < len(f.lastStamps)-1,
				nil
			err := resumeReading(s, p, &to.csvReadCounts, parse)
			bad, other := (*data.FileError)(nil), (*fileContentError)(nil)
			unreadable := errors.As(err, &bad) || errors.As(err, &other) || isTruncatedTextError(err)
			switch {
			case errors.Is(err, errNoColumnsAdded) && !p.forbidsAddedColumns:
				if f.noAddedColumnsByPath == nil {
					f.noAddedColumnsByPath = map[string]bool{}
				}
				f.noAddedColumnsByPath[s.path], again = true, true
			case mayMatchManyFiles(f.path) && p.table == nil && unreadable:
				p.stamp, p.readErr = s, err
				unread = cmp.Or(unread, err)
			case err != nil:
				return to, err
			}
		}
		if again {
			void(errNoColumnsAdded.Error())
			to = readProgress{}
		}
	}
	if unread != nil && !slices.ContainsFunc(to.files, func(p readPosition) bool { return p.table != nil }) {
		return to, unread // none of the files can be read
	}
	return to, nil
}

// qualityReport returns the counts and reports the files that cannot be read.
func (p *readProgress) qualityReport(names []string, time string) data.QualityReport {
	r := p.csvReadCounts.qualityReport(names, time)
	for _, f := range p.files {
		if f.readErr != nil {
			r.Troubles = append(r.Troubles, data.SourceTrouble{Kind: data.TroubleUnusedValues, Text: f.readErr.Error()})
		}
		if f.widenedAtLine > 0 {
			r.Troubles = append(r.Troubles, data.SourceTrouble{Kind: data.TroubleUnusedValues,
				Text: fmt.Sprintf("%s: line %d: %s; %s",
					f.stamp.path,
					f.widenedAtLine, describeAddedFields(f.fieldCount, len(f.table.header)), addedFieldsAdvice)})
		}
	}
	return r
}

// compareFilesWithProgress compares the files with the data that were read before. rotated contains the paths of
// changed files whose rows are all later than the rows read before, so that all of them are new. why is the reason for
// reading all files again, or "".
func (f *fileFollower) compareFilesWithProgress() (rotated map[string]bool, why string, err error) {
	rotated = map[string]bool{}
	for i, s := range f.lastStamps {
		p := f.progress.filePosition(s.path)
		if p == nil {
			for _, later := range f.lastStamps[i+1:] {
				if f.progress.filePosition(later.path) != nil {
					return nil, fmt.Sprintf("the name of the new file %s sorts before the names of files that were "+
						"already read", s.path), nil
				}
			}
			continue
		}
		if p.table == nil && !s.equal(p.stamp) && slices.ContainsFunc(f.lastStamps[i+1:], func(later fileStamp) bool {
			q := f.progress.filePosition(later.path)
			return q != nil && q.table != nil
		}) {
			return nil, fmt.Sprintf("%s has changed after later files had been read without the change", s.path), nil
		}
		if p.offset == 0 || s.equal(p.stamp) {
			continue
		}
		changed, err := p.changeReason(s)
		if err != nil {
			return nil, "", err
		}
		if changed == "" {
			continue
		}
		if f.parseFirstRowTime == nil {
			return nil, changed, nil
		}
		first, found, err := f.firstRowTimeInFile(s.path)
		switch {
		case err != nil:
			return nil, "", err
		case found && first <= f.progress.newestRowTime:
			return nil, changed, nil
		case !found:
			f.lastStamps = slices.Clone(f.lastStamps)
			f.lastStamps[i] = p.stamp // the file has no row yet, so the rows that were read before are kept
		default:
			rotated[s.path] = true
			delete(f.noAddedColumnsByPath, s.path)
		}
	}
	return rotated, "", nil
}

// firstRowTimeInFile returns the time of the first row of a file. found is false if the file has no row.
func (f *fileFollower) firstRowTimeInFile(path string) (at int64, found bool, err error) {
	text, err := OpenTextFile(path)
	if err != nil {
		return 0, false, err
	}
	defer text.Close()
	at, found = f.parseFirstRowTime(text)
	return at, found, nil
}

// changeReason returns the reason why the file may no longer contain the data that were read before, or "" if it still
// contains them.
func (p *readPosition) changeReason(now fileStamp) (string, error) {
	was := p.stamp
	switch {
	case !os.SameFile(was.info, now.info):
		return "a different file has this name", nil
	case now.size < p.offset:
		return fmt.Sprintf("the file was truncated from %d to %d bytes after %d lines had been read",
			was.size, now.size,
			p.lineCount), nil
	case now.equal(was): // only the last line without a line break may have become readable
	case now.size == was.size || !p.isResumable:
		return "the file was rewritten", nil
	}
	file, err := os.Open(now.path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	e, err := readFirstAndLastBytes(file, p.offset)
	if err == nil && (!bytes.Equal(e[0], p.firstAndLastBytes[0]) || !bytes.Equal(e[1], p.firstAndLastBytes[1])) {
		return "the file was rewritten", nil
	}
	if err == nil && p.hasReadUnterminatedLine {
		next := make([]byte, 2)
		n, err := file.ReadAt(next, p.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s: %w", now.path, err)
		}
		if next = next[:n]; !bytes.HasPrefix(next, []byte("\n")) && !bytes.Equal(next, []byte("\r\n")) {
			return "the last line of the file was extended after the line had been read", nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", now.path, err)
	}
	return "", nil
}

// resumeReading reads a file from the position p. It stops after the last complete line of a plain file. If the file
// has not changed for some time, it also reads a last line that has no line break.
func resumeReading(s fileStamp, p *readPosition, y *csvReadCounts, parse textParser) error {
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer file.Close()
	var text io.Reader
	if p.offset == 0 {
		if text, p.isResumable, err = newTextReader(s.path, file); err != nil {
			return err
		}
	}
	p.stamp = s
	if !p.isResumable {
		if !s.isUnchangedLongEnough {
			if err := checkCompressedFileComplete(s.path); err != nil {
				p.hasUnreadUnterminatedLine = true // a program may still be writing the file
				return err
			}
		}
		p.hasUnreadUnterminatedLine = false
		c := &countingReader{r: text}
		err = parse(c, p, y)
		p.offset, p.lineCount = s.size, p.readLines
		return err
	}
	end, err := afterLastLineBreak(file, p.offset, s.size)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	p.hasUnreadUnterminatedLine = end < s.size
	switch {
	case end == 0 && p.hasUnreadUnterminatedLine && s.isUnchangedLongEnough:
		p.hasUnreadUnterminatedLine = false
		return readUpToOffset(file, s.size, p, y, parse)
	case end == 0 && p.hasUnreadUnterminatedLine:
		return &data.FileError{File: s.path, Line: 1, Problem: "the first line has no line break yet; this line must " +
			"name the columns"}
	}
	if err := readUpToOffset(file, end, p, y,
		parse); err != nil || !p.hasUnreadUnterminatedLine || !s.isUnchangedLongEnough {
		return err
	}
	// If the line before the last one was not consumed either, it is read later, together with the next complete line.
	if p.hasUnreadUnterminatedLine = p.offset == end; !p.hasUnreadUnterminatedLine {
		return nil
	}
	at, before := *p, y.clone()
	if err := readUpToOffset(file, s.size, p, y,
		parse); err != nil || y.malformedLineCount == before.malformedLineCount || p.readLines > 1 {
		p.hasUnreadUnterminatedLine = false
		return err
	}
	*p, *y = at, before // undo the last line, which cannot be parsed and may be incomplete
	return nil
}

// checkCompressedFileComplete returns an error if the end of a compressed file is missing.
func checkCompressedFileComplete(path string) error {
	text, err := OpenTextFile(path)
	if err != nil {
		return err
	}
	defer text.Close()
	if _, err := io.Copy(io.Discard, text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readUpToOffset reads a plain file from the position p to the offset end.
func readUpToOffset(file io.ReaderAt, end int64, p *readPosition, y *csvReadCounts, parse textParser) error {
	text := &countingReader{r: io.NewSectionReader(file, p.offset, end-p.offset)}
	if p.hasReadUnterminatedLine { // the text starts with the line break of a line that was already counted
		p.lineCount--
	}
	if err := parse(text, p, y); err != nil {
		return err
	}
	cut := end - p.offset - text.byteCount
	p.offset, p.lineCount = p.offset+p.readBytes, p.lineCount+p.readLines
	if cut > 0 {
		return &data.FileError{File: p.stamp.path, Line: p.lineCount + 1,
			Problem: "the file was truncated here while it was being read"}
	}
	var err error
	p.firstAndLastBytes, err = readFirstAndLastBytes(file, p.offset)
	last := p.firstAndLastBytes[1]
	p.hasReadUnterminatedLine = p.offset == end && len(last) > 0 && last[len(last)-1] != '\n'
	return err
}

// countingReader counts the bytes that are read through it.
type countingReader struct {
	r         io.Reader
	byteCount int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.byteCount += int64(n)
	return n, err
}

// maxFileEndBytes is the number of bytes that are compared to detect a rewritten file, both at the start of the file
// and before the read offset.
const maxFileEndBytes = 4 << 10

// readFirstAndLastBytes returns the first and the last maxFileEndBytes bytes before the offset, or fewer if the file is
// shorter.
func readFirstAndLastBytes(f io.ReaderAt, offset int64) (e [2][]byte, err error) {
	n := min(offset, maxFileEndBytes)
	for i, at := range []int64{0, offset - n} {
		e[i] = make([]byte, n)
		if _, err := f.ReadAt(e[i], at); err != nil && !errors.Is(err, io.EOF) {
			return e, err
		}
	}
	return e, nil
}

// afterLastLineBreak returns the offset after the last line break in [from, to), or from if this range has no line
// break.
func afterLastLineBreak(f io.ReaderAt, from, to int64) (int64, error) {
	piece := make([]byte, maxFileEndBytes)
	for to > from {
		n := min(to-from, maxFileEndBytes)
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
