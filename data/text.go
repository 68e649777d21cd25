package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/fedmesh/fedmesh/learner"
)

// Text files come from programs of all ages: compressed, as UTF-16, in Latin-1, with the line ends of old Macs. All of
// them are read as UTF-8 with line feeds.

// sniffed is how much of a file is looked at to find its encoding.
const sniffed = 64 << 10

// plainText reads the text of an open file from its beginning. plain reports whether the text is the file's own bytes,
// so that it can be read on from an offset.
func plainText(path string, f *os.File) (text io.Reader, plain bool, err error) {
	r := io.Reader(f)
	if compressed(path) {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
	}
	b := bufio.NewReaderSize(r, sniffed)
	head, err := b.Peek(sniffed)
	if err != nil && len(head) == 0 && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	if decoder := utf16Of(head); decoder != nil {
		return transform.NewReader(b, decoder), false, nil
	}
	if i := bytes.IndexByte(head, '\r'); i >= 0 && i < len(head)-1 && !bytes.Contains(head, []byte("\n")) {
		return lineFeeds{b}, false, nil
	}
	return b, !compressed(path), nil
}

// utf16Of returns the decoder of a text in UTF-16, with or without a byte order mark; nil of another text.
func utf16Of(head []byte) transform.Transformer {
	bom, little := unicode.UseBOM, true
	if len(head) < 4 || !bytes.HasPrefix(head, []byte{0xff, 0xfe}) && !bytes.HasPrefix(head, []byte{0xfe, 0xff}) {
		// Without a mark: each second byte of the first letters is zero.
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

// lineFeeds reads a text whose lines end in a carriage return.
type lineFeeds struct{ r io.Reader }

func (l lineFeeds) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}

// latin1 is how a line that is not UTF-8 is read. It is what spreadsheets of Western Europe write, and has all of
// Latin-1.
var latin1 encoding.Encoding = charmap.Windows1252

// utf8Text returns a text as UTF-8.
func utf8Text(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	decoded, err := latin1.NewDecoder().String(text)
	if err != nil {
		return strings.ToValidUTF8(text, "\ufffd")
	}
	return decoded
}

// OpenFile opens a file of text, which may be compressed (.gz), in UTF-16, or with the line ends of old Macs.
func OpenFile(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, _, err := plainText(path, f)
	if err != nil {
		_ = f.Close() // the first error is the one to show
		return nil, err
	}
	return openText{text, f}, nil
}

func compressed(path string) bool { return strings.HasSuffix(path, ".gz") }

// openText is the text of an open file.
type openText struct {
	io.Reader
	io.Closer
}

// ReadFile reads all rows of a CSV file, which may be compressed.
func ReadFile[T learner.Float](path string, features []string, target string) (*learner.Samples[T], error) {
	r, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return ReadCSV[T](r, path, features, target, Filter{})
}
