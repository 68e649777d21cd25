package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
)

// senMLDecoder decodes SenML (RFC 8428) in JSON or CBOR. The name of a reading is the base name followed by the name of
// the record. Records that contain binary data, or only a sum, contain no reading.
type senMLDecoder struct{}

const (
	// senMLVersion is the maximum version of SenML that is supported.
	senMLVersion = 10
	// senMLAbsoluteTime is the number of seconds from which a time is absolute. An earlier time is relative to now.
	senMLAbsoluteTime = 1 << 28
	// maxSenMLName is the maximum length of the name of a reading, in bytes. It limits the memory for a long base name
	// with many short records.
	maxSenMLName = 1024
)

// senMLLabelByNumber contains the labels of JSON by the numbers that CBOR uses instead (RFC 8428, table 4).
var senMLLabelByNumber = map[string]string{"-1": "bver", "-2": "bn", "-3": "bt", "-4": "bu", "-5": "bv", "-6": "bs",
	"0": "n", "1": "u", "2": "v", "3": "vs", "4": "vb", "5": "s", "6": "t", "7": "ut", "8": "vd"}

// senMLBase contains the base values that apply to a record and all following records.
type senMLBase struct {
	name, unit string
	time       senMLNumber
	value      senMLNumber
}

// senMLNumber is a number with its text, so that adding zero does not round the number.
type senMLNumber struct {
	text  string
	value float64
}

// Decode implements Decoder.
func (senMLDecoder) Decode(m Message) (Content, error) {
	parse, isCBOR := ParseJSON, beginsLikeCBOR(m.Payload)
	if isCBOR {
		parse = parseCBOR
	}
	tree, err := parse(m.Payload)
	if err != nil {
		return Content{}, fmt.Errorf("%w%s", err, adviceOf(m.Payload, FormatSenML))
	}
	records, isList := tree.([]any)
	if !isList {
		return Content{}, errors.New("not a list of SenML records: remove format: senml from data.topics, " +
			"or correct the topic")
	}
	var c Content
	var base senMLBase
	for i, record := range records {
		of, isObject := record.(map[string]any)
		if !isObject {
			return Content{}, fmt.Errorf("SenML record %d is not an object", i)
		}
		if isCBOR {
			of = renameSenMLLabels(of)
		}
		r, found, err := base.readRecord(of)
		if err != nil {
			return Content{}, fmt.Errorf("SenML record %d: %w", i, err)
		}
		if found {
			c.readings = append(c.readings, r)
		}
	}
	return c, nil
}

// renameSenMLLabels returns a record of CBOR with the labels of JSON.
func renameSenMLLabels(record map[string]any) map[string]any {
	renamed := make(map[string]any, len(record))
	for key, v := range record {
		if label := senMLLabelByNumber[key]; label != "" {
			key = label
		}
		renamed[key] = v
	}
	return renamed
}

// readRecord updates the base values and returns the reading of a record. found is false if the record has no value.
func (b *senMLBase) readRecord(record map[string]any) (r Reading, found bool, err error) {
	var name, unit string
	var at, number senMLNumber
	for _, key := range slices.Sorted(maps.Keys(record)) {
		v := record[key]
		switch key {
		case "bn", "bu", "n", "u":
			text, isText := v.(string)
			if !isText {
				return Reading{}, false, fmt.Errorf("%s is %s; want a text", key, data.QuoteForMessage(ValueText(v)))
			}
			*map[string]*string{"bn": &b.name, "bu": &b.unit, "n": &name, "u": &unit}[key] = text
		case "bt", "bv", "t", "v", "bver":
			n, err := parseSenMLNumber(key, v)
			if err != nil {
				return Reading{}, false, err
			}
			switch key {
			case "bt":
				b.time = n
			case "bv":
				b.value = n
			case "t":
				at = n
			case "v":
				number = n
			case "bver":
				if n.value > senMLVersion {
					return Reading{}, false, fmt.Errorf("the SenML version is %s, but only versions up to %d are "+
						"supported", n.text, senMLVersion)
				}
			}
		default:
			if strings.HasSuffix(key, "_") {
				return Reading{}, false, fmt.Errorf("the SenML extension %s must be understood, but is unknown",
					data.QuoteForMessage(key))
			}
		}
	}
	if len(b.name)+len(name) > maxSenMLName {
		return Reading{}, false, fmt.Errorf("the name has %d bytes; want at most %d", len(b.name)+len(name),
			maxSenMLName)
	}
	r = Reading{Name: b.name + name, Unit: unit}
	if unit == "" {
		r.Unit = b.unit
	}
	switch seconds := addSenMLNumbers(b.time, at).value; {
	case seconds >= senMLAbsoluteTime && seconds < math.MaxInt64/1e9:
		// A float64 has a resolution of less than a microsecond for these times.
		r.Time, r.HasTime = int64(math.Round(seconds*1e6))*1e3, true
	case seconds >= senMLAbsoluteTime:
		return Reading{}, false, fmt.Errorf("the time %v is later than the year 2262", seconds)
	case seconds < -senMLAbsoluteTime:
		return Reading{}, false, fmt.Errorf("the time %v is more than %d seconds ago", seconds, senMLAbsoluteTime)
	default:
		r.Age = -time.Duration(math.Round(seconds * float64(time.Second)))
	}
	switch v, hasNumber := record["v"]; {
	case hasNumber && v == nil:
	case hasNumber:
		sum := addSenMLNumbers(b.value, number)
		r.Value = json.Number(sum.text)
	case record["vs"] != nil:
		r.Value = record["vs"]
	case record["vb"] != nil:
		r.Value = record["vb"]
	case record["s"] == nil && record["vd"] == nil && b.value.text != "" && (name != "" || b.name != ""):
		r.Value = json.Number(b.value.text) // a record without a value has the base value
	default:
		return Reading{}, false, nil
	}
	return r, r.Name != "" || r.Unit != "", nil
}

// parseSenMLNumber parses the number of a label. null is 0, and readRecord handles it as a missing value.
func parseSenMLNumber(label string, v any) (senMLNumber, error) {
	if v == nil && label == "v" {
		return senMLNumber{}, nil
	}
	text, isNumber := v.(json.Number)
	n, err := strconv.ParseFloat(string(text), 64)
	if !isNumber || err != nil || !data.IsFinite(n) {
		return senMLNumber{}, fmt.Errorf("%s is %s; want a number", label, data.QuoteForMessage(ValueText(v)))
	}
	return senMLNumber{string(text), n}, nil
}

// addSenMLNumbers returns a + b. If one of the numbers is absent or 0, it returns the other number without rounding.
func addSenMLNumbers(a, b senMLNumber) senMLNumber {
	switch {
	case b.text == "":
		return a
	case a.value == 0:
		return b
	case b.value == 0:
		return a
	}
	sum := a.value + b.value
	return senMLNumber{strconv.FormatFloat(sum, 'g', -1, 64), sum}
}
