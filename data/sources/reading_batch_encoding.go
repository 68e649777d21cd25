package sources

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/data"
)

// A batch in the ring (bounded log on disk) contains readings one after another. Layout of a reading:
//
//	2·index + hasText (uvarint) | name | unit | source (8 bytes) | time delta (varint) | value (8 bytes) or text
//
// Each combination of a name, a unit and a source has an index, counted from 0 in the order of its first occurrence in
// the batch. The name, the unit and the source are only written at this first occurrence. hasText is 1 if the reading
// has a text, and 0 if it has a value. Names, units and texts are written as a length (uvarint) and the bytes. The time
// delta is the difference from the time of the previous reading. Sources and values are little endian.

const (
	// maxTextBytes is the maximum length of the name and of the text of a reading, in bytes.
	maxTextBytes = 255
	// maxUnitBytes is the maximum length of the unit of a reading, in bytes.
	maxUnitBytes = 64
)

// readingBatchEncoder encodes readings as a batch.
type readingBatchEncoder struct {
	body            []byte
	indexBySeries   map[readingSeries]uint64
	readingCount    int
	lastReadingTime int64 // time of the last reading
	newestTime      int64 // newest time of all readings
}

// readingSeries identifies readings of the same input and source with the same unit.
type readingSeries struct {
	input, unit string
	source      uint64
}

// addReading appends a reading. It returns false and appends nothing if the body would exceed longest bytes.
func (e *readingBatchEncoder) addReading(r data.Reading, longest int) bool {
	series := readingSeries{r.Input, r.Unit, r.Source}
	length, index := len(e.body), uint64(len(e.indexBySeries))
	known, found := e.indexBySeries[series]
	if found {
		index = known
	}
	flag := uint64(0)
	if r.Text != "" {
		flag = 1
	}
	e.body = binary.AppendUvarint(e.body, 2*index+flag)
	if !found {
		e.body = appendLengthPrefixedText(appendLengthPrefixedText(e.body, r.Input), r.Unit)
		e.body = binary.LittleEndian.AppendUint64(e.body, r.Source)
	}
	e.body = binary.AppendVarint(e.body, r.Time-e.lastReadingTime)
	if r.Text != "" {
		e.body = appendLengthPrefixedText(e.body, r.Text)
	} else {
		e.body = binary.LittleEndian.AppendUint64(e.body, math.Float64bits(r.Value))
	}
	if len(e.body) > longest {
		e.body = e.body[:length]
		return false
	}
	if e.indexBySeries == nil {
		e.indexBySeries, e.newestTime = map[readingSeries]uint64{}, r.Time
	}
	e.indexBySeries[series] = index
	e.readingCount++
	e.lastReadingTime, e.newestTime = r.Time, max(e.newestTime, r.Time)
	return true
}

func appendLengthPrefixedText(p []byte, text string) []byte {
	return append(binary.AppendUvarint(p, uint64(len(text))), text...)
}

var errInvalidReadingBatch = errors.New("the stored data is not a valid batch of readings")

// decodeReadingBatch calls take for each reading of a batch. The readings are numbered from first. It returns
// errInvalidReadingBatch if the body is invalid. Because the checksum was verified before, an invalid body means that a
// different program has written the batch.
func decodeReadingBatch(body []byte, first uint64, take func(data.Reading)) error {
	var all []readingSeries
	last := int64(0)
	for len(body) > 0 {
		head, n := binary.Uvarint(body)
		if n <= 0 || head/2 > uint64(len(all)) {
			return errInvalidReadingBatch
		}
		body = body[n:]
		if head/2 == uint64(len(all)) {
			input, rest, hasInput := cutLengthPrefixedText(body)
			unit, rest, hasUnit := cutLengthPrefixedText(rest)
			if !hasInput || !hasUnit || len(rest) < 8 {
				return errInvalidReadingBatch
			}
			all, body = append(all, readingSeries{input, unit, binary.LittleEndian.Uint64(rest)}), rest[8:]
		}
		step, n := binary.Varint(body)
		if n <= 0 {
			return errInvalidReadingBatch
		}
		body = body[n:]
		last += step
		of := all[head/2]
		r := data.Reading{Input: of.input, Unit: of.unit, Source: of.source, Time: last, SequenceNumber: first}
		first++
		if head%2 == 1 {
			ok := false
			if r.Text, body, ok = cutLengthPrefixedText(body); !ok {
				return errInvalidReadingBatch
			}
			r.Value = numberFromText(r.Text)
		} else {
			if len(body) < 8 {
				return errInvalidReadingBatch
			}
			r.Value, body = math.Float64frombits(binary.LittleEndian.Uint64(body)), body[8:]
		}
		take(r)
	}
	return nil
}

func cutLengthPrefixedText(p []byte) (text string, rest []byte, ok bool) {
	length, n := binary.Uvarint(p)
	if n <= 0 || length > maxTextBytes || uint64(len(p)-n) < length {
		return "", nil, false
	}
	return string(p[n : n+int(length)]), p[n+int(length):], true
}

// numberFromText converts a text to a number. It converts true and false, case-insensitively, to 1 and 0, and returns
// NaN for other texts that are not numbers.
func numberFromText(text string) float64 {
	switch {
	case strings.EqualFold(text, "true"):
		return 1
	case strings.EqualFold(text, "false"):
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // a number out of range becomes infinite
		return math.NaN()
	}
	return v
}
