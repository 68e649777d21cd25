package sources

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/fedmesh/fedmesh/learner"
)

// Text files may be compressed, may be encoded in UTF-16 or Windows-1252, and may have lines that end with a carriage
// return, as on the classic Mac OS. The functions in this file convert such files to UTF-8 with line feeds.

// sniffBytes is the number of bytes that are examined to detect the encoding of a file.
const sniffBytes = 64 << 10

// newTextReader returns a reader for the text of an open file, decompressed and converted if necessary. plain reports
// whether the text is identical to the bytes of the file, so that reading can later continue at an offset.
func newTextReader(path string, f *os.File) (text io.Reader, plain bool, err error) {
	r := io.Reader(f)
	if isCompressedPath(path) {
		r, err = gzip.NewReader(f)
		if errors.Is(err, gzip.ErrHeader) {
			return nil, false, &fileContentError{path, "the name ends in .gz, but the content is not gzip",
				"rename the file without .gz"}
		}
		if errors.Is(err, io.EOF) { // the file is empty
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
	}
	b := bufio.NewReaderSize(r, sniffBytes)
	head, err := b.Peek(sniffBytes)
	if err != nil && len(head) == 0 && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	if bytes.HasPrefix(head, []byte("\x1f\x8b")) && !isCompressedPath(path) {
		return nil, false, &fileContentError{path, "the content is gzip, but the name does not end in .gz",
			"rename the file to " + filepath.Base(path) + ".gz"}
	}
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) {
		return nil, false, &fileContentError{path, "the content is a ZIP archive or an Excel workbook, not text",
			"export the table as a CSV file"}
	}
	if decoder := utf16Decoder(head); decoder != nil {
		return transform.NewReader(b, decoder), false, nil
	}
	if i := bytes.IndexByte(head, '\r'); i >= 0 && i < len(head)-1 && !bytes.Contains(head, []byte("\n")) {
		return carriageReturnReader{b}, false, nil
	}
	return b, !isCompressedPath(path), nil
}

// fileContentError reports that the content of a file is not text, or does not match the file's extension.
type fileContentError struct{ path, problem, remedy string }

func (e *fileContentError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.path, e.problem, e.remedy)
}

// utf16Decoder returns a decoder if the text is in UTF-16, with or without a byte order mark, and nil otherwise.
func utf16Decoder(head []byte) transform.Transformer {
	bom, little := unicode.UseBOM, true
	if len(head) < 4 || !bytes.HasPrefix(head, []byte{0xff, 0xfe}) && !bytes.HasPrefix(head, []byte{0xfe, 0xff}) {
		// Without a byte order mark, UTF-16 is recognised because every second byte of Latin letters is zero.
		even, odd := 0, 0
		some := head[:min(len(head), 64)&^1]
		for i := 0; i < len(some); i += 2 {
			if some[i] == 0 {
				even++
			}
			if some[i+1] == 0 {
				odd++
			}
		}
		if half := len(some) / 2; half < 4 || 4*max(even, odd) < 3*half || min(even, odd) > 0 {
			return nil
		}
		bom, little = unicode.IgnoreBOM, odd > even
	}
	endianness := unicode.BigEndian
	if little {
		endianness = unicode.LittleEndian
	}
	return unicode.UTF16(endianness, bom).NewDecoder().Transformer
}

// carriageReturnReader converts carriage returns to line feeds.
type carriageReturnReader struct{ r io.Reader }

func (l carriageReturnReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}

// OpenTextFile opens a text file. It decompresses files named *.gz and converts UTF-16 and lines that end with a
// carriage return.
func OpenTextFile(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, plain, err := newTextReader(path, f)
	if err != nil {
		_ = f.Close() // the error of Close is ignored in favour of the first error
		return nil, err
	}
	return textFileReader{text, f, plain}, nil
}

func isCompressedPath(path string) bool { return strings.HasSuffix(path, ".gz") }

// textFileReader reads the converted text of a file and closes the file.
type textFileReader struct {
	io.Reader
	io.Closer
	isPlainText bool // whether the text is identical to the bytes of the file; see newTextReader
}

// ReadCSVFile reads all rows of a CSV file, which may be compressed.
func ReadCSVFile[T learner.Float](path string, features []string, target string) (*learner.Samples[T], error) {
	r, err := OpenTextFile(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return ReadCSV[T](r, path, features, target, RowFilter{})
}
