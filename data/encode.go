package data

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// A batch of readings in the ring is one reading after the other:
//
//	2·index + text (uvarint) | name, if the index is new | time less that before (varint) | value (8) or text
//
// Names have indices in the order in which they appear in the batch, from 0; a name and a text are a length (uvarint)
// and as many bytes. text is 1 if a text follows, else 0. Values are little endian.

// maxText is the longest name and the longest text of a reading, in bytes.
const maxText = 255

// encoder makes a batch.
type encoder struct {
	body  []byte
	names map[string]uint64
	count int
	last  int64 // time
	most  int64 // of the times
}

// add appends a reading unless the body would be longer than that.
func (e *encoder) add(r Reading, longest int) bool {
	length, index := len(e.body), uint64(len(e.names))
	known, found := e.names[r.Input]
	if found {
		index = known
	}
	flag := uint64(0)
	if r.Text != "" {
		flag = 1
	}
	e.body = binary.AppendUvarint(e.body, 2*index+flag)
	if !found {
		e.body = appendText(e.body, r.Input)
	}
	e.body = binary.AppendVarint(e.body, r.Time-e.last)
	if r.Text != "" {
		e.body = appendText(e.body, r.Text)
	} else {
		e.body = binary.LittleEndian.AppendUint64(e.body, math.Float64bits(r.Value))
	}
	if len(e.body) > longest {
		e.body = e.body[:length]
		return false
	}
	if e.names == nil {
		e.names, e.most = map[string]uint64{}, r.Time
	}
	e.names[r.Input] = index
	e.count++
	e.last, e.most = r.Time, max(e.most, r.Time)
	return true
}

func appendText(p []byte, text string) []byte {
	return append(binary.AppendUvarint(p, uint64(len(text))), text...)
}

var errBatch = errors.New("not a batch of readings")

// decode passes on the readings of a batch. The checksum was verified, so an error means that another program wrote it.
func decode(body []byte, take func(Reading)) error {
	var names []string
	last := int64(0)
	for len(body) > 0 {
		head, n := binary.Uvarint(body)
		if n <= 0 || head/2 > uint64(len(names)) {
			return errBatch
		}
		body = body[n:]
		if head/2 == uint64(len(names)) {
			name, rest, ok := cutText(body)
			if !ok {
				return errBatch
			}
			names, body = append(names, name), rest
		}
		step, n := binary.Varint(body)
		if n <= 0 {
			return errBatch
		}
		body = body[n:]
		last += step
		r := Reading{Input: names[head/2], Time: last}
		if head%2 == 1 {
			ok := false
			if r.Text, body, ok = cutText(body); !ok {
				return errBatch
			}
			r.Value = numberOf(r.Text)
		} else {
			if len(body) < 8 {
				return errBatch
			}
			r.Value, body = math.Float64frombits(binary.LittleEndian.Uint64(body)), body[8:]
		}
		take(r)
	}
	return nil
}

func cutText(p []byte) (text string, rest []byte, ok bool) {
	length, n := binary.Uvarint(p)
	if n <= 0 || length > maxText || uint64(len(p)-n) < length {
		return "", nil, false
	}
	return string(p[n : n+int(length)]), p[n+int(length):], true
}

// numberOf is the number that a text stands for: true and false are 1 and 0. It is NaN if the text is no number.
func numberOf(text string) float64 {
	switch text {
	case "true":
		return 1
	case "false":
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // else it is infinite
		return math.NaN()
	}
	return v
}
