// Package discover finds the values that devices publish at an MQTT broker.
//
// A [Survey] receives the messages of the broker. It recognises the system that published a message by the topic and
// the payload, decodes the payload with package payload, and summarises each number as a [Series]. A survey uses
// neither a clock nor a connection. [Survey.Series] returns the summary, and [Propose] turns it into sections of
// configuration files.
//
// A survey needs bounded memory, whatever messages it receives. It stores only numbers and names, never the texts of
// values, and omits numbers whose names suggest a secret.
package discover

import (
	"cmp"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data/payload"
)

// Limits of a survey.
const (
	MaxTopics      = 10_000 // maximum number of topics
	MaxSeries      = 20_000 // maximum number of series
	maxPayload     = 64 << 10
	maxNameBytes   = 256 // maximum length in bytes of a topic, a column, and each name and unit that a device announces
	sparklineCount = 32  // number of values that a series stores
)

// Series summarises one value of a device.
type Series struct {
	System   string // name of the system, such as Tasmota
	Device   string // name of the device in its system
	Quantity string // name of the measured value
	Unit     string // unit, if the device or Home Assistant states one

	Topic, Column string // topic and column that select the value in data.columns

	Count     int // number of messages with a number
	Missing   int // number of messages whose value is missing or not a number
	IsBoolean bool
	Min, Max  float64
	Last      float64
	FirstAt   time.Time // arrival of the first live (not retained) message; zero if there was none
	LastAt    time.Time // arrival of the last live (not retained) message
	Live      int       // number of messages that were not retained
	Recent    []float64 // last values, at most 32, from oldest to newest

	settings            topicSettings
	payloadContainsUnit bool // whether the payload contains the unit, so that agentd can read it from the payload
}

// minFrozenCount is the minimum number of equal values after which a series is considered frozen.
const minFrozenCount = 5

// IsFrozen reports whether at least five live messages contain the same number.
func (s *Series) IsFrozen() bool { return s.Live >= minFrozenCount && s.Min == s.Max && !s.IsBoolean }

// Interval returns the mean time between two live messages, or 0 if there are fewer than two.
func (s *Series) Interval() time.Duration {
	if s.Live < 2 {
		return 0
	}
	return s.LastAt.Sub(s.FirstAt) / time.Duration(s.Live-1)
}

// Survey summarises the messages of a broker. It is not safe for concurrent use.
type Survey struct {
	systems    map[string]*system // system by topic; nil if it is unknown so far
	series     map[seriesKey]*Series
	decoders   map[string]payload.Decoder // decoder by format
	announced  map[seriesKey]announcedValue
	rejections map[string]int  // number of undecodable messages by system
	hidden     map[string]bool // columns whose names suggest a secret
	// Messages is the number of messages. Skipped is the number of messages and values that exceeded a limit of the
	// survey.
	Messages, Skipped int
}

type seriesKey struct{ topic, column string }

// New returns an empty survey.
func New() *Survey {
	return &Survey{systems: map[string]*system{}, series: map[seriesKey]*Series{},
		decoders: map[string]payload.Decoder{}, announced: map[seriesKey]announcedValue{},
		rejections: map[string]int{}, hidden: map[string]bool{}}
}

// Add adds a message to the survey.
func (s *Survey) Add(m payload.Message) {
	s.Messages++
	of, isKnown := s.systems[m.Topic]
	switch {
	case strings.HasPrefix(m.Topic, "$") || matchesAny(ignoredFilters, m.Topic):
		return
	case len(m.Payload) > maxPayload || !isUsableName(m.Topic) || !isKnown && len(s.systems) == MaxTopics:
		s.Skipped++
		return
	case matchesAny(announcementFilters, m.Topic):
		s.addAnnouncement(m.Payload)
		return
	case of == nil: // an earlier message of the topic may have been empty, or the text "unavailable"
		of = recognise(m)
		s.systems[m.Topic] = of
	}
	if of == nil {
		return
	}
	content, err := s.decoder(of.format).Decode(m)
	if err != nil {
		s.rejections[of.name]++
		return
	}
	levels := strings.Split(m.Topic, "/")
	for _, v := range content.Values() {
		s.addValue(m, of, levels, v)
	}
}

func (s *Survey) decoder(format string) payload.Decoder {
	if s.decoders[format] == nil {
		s.decoders[format] = payload.NewDecoder(format, payload.Options{})
	}
	return s.decoders[format]
}

// addValue adds one value of a message.
func (s *Survey) addValue(m payload.Message, of *system, levels []string, v payload.Value) {
	if !isUsableName(v.Column) {
		s.Skipped++
		return
	}
	quantity, used := of.quantity(levels, v)
	if !used {
		return
	}
	number, isBoolean, state := numberOf(v.Reading.Value)
	key := seriesKey{of.columnTopic(m.Topic, v.Reading.Topic), v.Column}
	series := s.series[key]
	switch {
	case series == nil && state != isNumber: // a text, or a value that has always been missing
		return
	case mayBeSecret.MatchString(quantity + " " + v.Column):
		if len(s.hidden) < MaxSeries {
			s.hidden[m.Topic+" "+v.Column] = true
		}
		return
	case series == nil && (len(s.series) == MaxSeries || !isUsableName(key.topic)):
		s.Skipped++
		return
	case series == nil:
		series = &Series{System: of.name, Device: of.device(levels), Quantity: quantity, Topic: key.topic,
			Column: key.column, Min: math.Inf(1), Max: math.Inf(-1), settings: of.settings}
		s.series[key] = series
	}
	if isUsableName(v.Reading.Unit) {
		series.Unit = cmp.Or(v.Reading.Unit, series.Unit)
		series.payloadContainsUnit = series.payloadContainsUnit || v.Reading.Unit != ""
	}
	if state != isNumber {
		series.Missing++
		return
	}
	series.add(number, isBoolean, m)
}

// add adds a number of a message.
func (s *Series) add(number float64, isBoolean bool, m payload.Message) {
	s.Count++
	s.IsBoolean = isBoolean
	s.Min, s.Max, s.Last = min(s.Min, number), max(s.Max, number), number
	if len(s.Recent) == sparklineCount {
		copy(s.Recent, s.Recent[1:])
		s.Recent = s.Recent[:sparklineCount-1]
	}
	s.Recent = append(s.Recent, number)
	if m.IsRetained {
		return
	}
	s.Live++
	if s.FirstAt.IsZero() {
		s.FirstAt = m.ReceivedAt
	}
	s.LastAt = m.ReceivedAt
}

// valueState states whether a value is a number.
type valueState int

const (
	isNumber valueState = iota
	isMissing
	isText
)

// numberOf returns a value as a number. The value true is 1, and a text that contains only a number is this number.
func numberOf(value any) (number float64, isBoolean bool, state valueState) {
	var text string
	switch v := value.(type) {
	case nil:
		return 0, false, isMissing
	case bool:
		if v {
			number = 1
		}
		return number, true, isNumber
	case json.Number:
		text = string(v)
	case string:
		text = v
	default:
		return 0, false, isText
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
		return 0, false, isText
	}
	return number, false, isNumber
}

// mayBeSecret matches columns and names of values whose numbers may be secret, such as a PIN or a position.
var mayBeSecret = regexp.MustCompile(`(?i)passw|passphrase|passcode|passkey|secret|token|credential|psk|api_?key|` +
	`auth_?(key|code)|\bpin\b|pin_?code|ssid|latitude|longitude|\bgps|cookie`)

// isUsableName reports whether a topic, a column or a unit is short enough and contains only printable characters.
func isUsableName(text string) bool {
	return len(text) <= maxNameBytes && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// Series returns all series, ordered by system, device and quantity.
func (s *Survey) Series() []*Series {
	all := make([]*Series, 0, len(s.series))
	for key, series := range s.series {
		if a, ok := s.announced[key]; ok {
			series.Unit = cmp.Or(series.Unit, a.unit)
			series.Device, series.Quantity = cmp.Or(a.device, series.Device), cmp.Or(a.name, series.Quantity)
		}
		all = append(all, series)
	}
	slices.SortFunc(all, func(a, b *Series) int {
		return cmp.Or(cmp.Compare(a.System, b.System), cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Quantity, b.Quantity), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// Rejections returns the number of messages of each system that could not be decoded.
func (s *Survey) Rejections() map[string]int { return s.rejections }

// Topics returns the number of topics.
func (s *Survey) Topics() int { return len(s.systems) }

// Hidden returns the number of values that are left out because their names suggest a secret.
func (s *Survey) Hidden() int { return len(s.hidden) }

// ignoredFilters match topics that contain no readings.
var ignoredFilters = []string{
	"fl/v1/#", "cmnd/#", "stat/#", "tele/+/LWT", "tele/+/STATE", "tele/+/INFO1", "tele/+/INFO2", "tele/+/INFO3",
	"zigbee2mqtt/bridge/#", "+/bridge/#", "tasmota/discovery/#", "spBv1.0/STATE/#", "spBv1.0/+/NCMD/#",
	"spBv1.0/+/DCMD/#",
}
