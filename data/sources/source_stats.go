package sources

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
)

const (
	// silentAfter is the time without readings after which an input is reported as silent.
	silentAfter = 10 * time.Minute
	// damageReportDuration is the time for which repaired damage is reported.
	damageReportDuration = time.Hour
	// maxSourceInputs is the maximum number of inputs that are counted separately if the names of the inputs come from
	// the payloads.
	maxSourceInputs = 256
)

// sourceStats counts the received values by input and stores the troubles of a source. Its methods may be called
// concurrently.
type sourceStats struct {
	now           func() time.Time
	logger        *slog.Logger
	startedAt     time.Time
	onUnusedValue func() // called after a value was rejected; may be nil

	mu               sync.Mutex
	unusedValueCount uint64 // number of rejected values of all inputs
	statsByInput     map[string]*inputStats
	textByTroubleKey map[string]string // text of each trouble, by kind and input name, separated by a space
	damageText       string
	damagedAt        time.Time // time at which the damage was found
	oversizedByTopic map[string]oversizedTopic
}

// inputStats contains the counts of one input.
type inputStats struct {
	data.ColumnReport
	inputOrigin string // origin of the readings for messages, such as a topic
	// lastReadingAt is the time of the last reading that is not missing, whether used or not; zero before the first
	// such reading.
	lastReadingAt    time.Time
	recentWrongShare grid.RecentWrongShare
	offlineSince     time.Time // time at which the device of the input went offline; zero if it is online
	offlineTopic     string    // topic of the device that is offline
}

func newSourceStats(now func() time.Time, logger *slog.Logger) *sourceStats {
	return &sourceStats{now: now, logger: logger, startedAt: now(), statsByInput: map[string]*inputStats{},
		textByTroubleKey: map[string]string{},
		oversizedByTopic: map[string]oversizedTopic{}}
}

// expectInput registers an input, which is reported as silent if no readings arrive. from is the origin of the
// readings, for messages.
func (l *sourceStats) expectInput(input, from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ensureInputStats(input).inputOrigin = from
}

// inputOriginOf returns the origin of an input for messages.
func (l *sourceStats) inputOriginOf(input string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.statsByInput[input]; e != nil {
		return e.inputOrigin
	}
	return ""
}

// mayCountInput reports whether an input may be counted: it is known, or the number of inputs is below the limit.
func (l *sourceStats) mayCountInput(input string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.statsByInput[input] != nil || len(l.statsByInput) < maxSourceInputs
}

func (l *sourceStats) ensureInputStats(name string) *inputStats {
	e := l.statsByInput[name]
	if e == nil {
		e = &inputStats{ColumnReport: data.ColumnReport{Name: name, Unused: map[data.UnusedReason]uint64{}}}
		l.statsByInput[name] = e
	}
	return e
}

// setDeviceOffline stores whether the device of an input is offline. topic is the topic of the device.
func (l *sourceStats) setDeviceOffline(input, topic string, isOffline bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e := l.ensureInputStats(input); {
	case !isOffline:
		e.offlineSince = time.Time{}
	case e.offlineSince.IsZero():
		e.offlineSince, e.offlineTopic = l.now(), topic
	}
}

// countUsedReading counts a recorded reading.
func (l *sourceStats) countUsedReading(r data.Reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.ensureInputStats(r.Input)
	e.lastReadingAt = l.now()
	e.ReceivedValues++
	e.Used++
	e.recentWrongShare.CountValue(false)
	e.UnusedRun.CountValue(true)
	e.NewestTime = max(e.NewestTime, r.Time)
}

// countUnusedValue counts a rejected value. problem describes the value and its error. where is its place, such as a
// topic or a line, and may be empty.
func (l *sourceStats) countUnusedValue(input string, why data.UnusedReason, problem, where string) {
	if l.onUnusedValue != nil {
		defer l.onUnusedValue()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.ensureInputStats(input)
	if why != grid.ReasonMissing { // an input whose values are all missing is reported as silent
		e.lastReadingAt = l.now()
	}
	e.ReceivedValues++
	l.unusedValueCount++
	e.Unused[why]++
	e.UnusedRun.CountValue(false)
	if why.MeansWrongValue() {
		e.recentWrongShare.CountValue(true)
	}
	e.LastUnusedWhere, e.LastUnusedProblem = cmp.Or(where, e.LastUnusedWhere), cmp.Or(problem, e.LastUnusedProblem)
	e.SetLastUnusedValue(why, data.UnusedValue{Where: where, Problem: problem})
}

// unusedTotal returns the number of rejected values of all inputs.
func (l *sourceStats) unusedTotal() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unusedValueCount
}

// setTrouble sets a trouble, or clears it if err is nil. It logs the start and the end of a trouble.
func (l *sourceStats) setTrouble(kind data.TroubleKind, of string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := string(kind) + " " + of
	before, failed := l.textByTroubleKey[key]
	switch {
	case err == nil && failed:
		delete(l.textByTroubleKey, key)
		l.logger.Info("data source recovered", "previous_problem", before)
	case err != nil && !failed:
		l.logger.Warn("data source has a problem", "err", err)
		fallthrough
	case err != nil:
		l.textByTroubleKey[key] = err.Error()
	}
}

// maxNodeTroubles is the maximum number of Sparkplug nodes whose problems are reported.
const maxNodeTroubles = 16

// setNodeTrouble sets the trouble of a Sparkplug node, or clears it if err is nil. Above maxNodeTroubles, it ignores
// the troubles of further nodes.
func (l *sourceStats) setNodeTrouble(node string, err error) {
	l.mu.Lock()
	_, isReported := l.textByTroubleKey[string(data.TroubleUnusedValues)+" "+node]
	count := 0
	for key := range l.textByTroubleKey {
		if strings.HasPrefix(key, string(data.TroubleUnusedValues)+" ") {
			count++
		}
	}
	l.mu.Unlock()
	if err == nil || isReported || count < maxNodeTroubles {
		l.setTrouble(data.TroubleUnusedValues, node, err)
	}
}

// setInitialTrouble sets a trouble at the start without logging it.
func (l *sourceStats) setInitialTrouble(kind data.TroubleKind, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.textByTroubleKey[string(kind)+" "] = text
}

func (l *sourceStats) clearTroubles(kind data.TroubleKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.textByTroubleKey {
		if strings.HasPrefix(key, string(kind)+" ") {
			delete(l.textByTroubleKey, key)
		}
	}
}

// recordRingDamage records damage of the ring that was found and repaired.
func (l *sourceStats) recordRingDamage(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logger.Warn("stored readings are damaged", "err", err)
	l.damageText, l.damagedAt = err.Error(), l.now()
}

// columnReports returns the counts of all inputs, sorted by name.
func (l *sourceStats) columnReports() []data.ColumnReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]data.ColumnReport, 0, len(l.statsByInput))
	for _, name := range slices.Sorted(maps.Keys(l.statsByInput)) {
		c := l.statsByInput[name].ColumnReport
		c.Unused, c.LastUnusedByReason, c.RecentWrongShare = maps.Clone(c.Unused), maps.Clone(c.LastUnusedByReason),
			l.statsByInput[name].recentWrongShare.Share()
		all = append(all, c)
	}
	return all
}

// currentTroubles returns the current troubles. They include the wanted inputs that have been silent for some time.
func (l *sourceStats) currentTroubles(wanted []string) []data.SourceTrouble {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var all []data.SourceTrouble
	for _, key := range slices.Sorted(maps.Keys(l.textByTroubleKey)) {
		kind, _, _ := strings.Cut(key, " ")
		all = append(all, data.SourceTrouble{Kind: data.TroubleKind(kind), Text: l.textByTroubleKey[key]})
	}
	if l.damageText != "" && now.Sub(l.damagedAt) < damageReportDuration {
		all = append(all, data.SourceTrouble{Kind: data.TroubleStorage, Text: l.damageText})
	}
	all = append(all, l.oversizedTroubles(now)...)
	for _, name := range wanted {
		e := l.statsByInput[name]
		switch {
		case e != nil && !e.offlineSince.IsZero():
			all = append(all, data.SourceTrouble{Kind: data.TroubleSilent,
				Text: fmt.Sprintf("input %q: the device has been offline since %s, according to topic %s", name,
					e.offlineSince.UTC().Format(time.RFC3339), data.QuoteForMessage(e.offlineTopic))})
		case now.Sub(l.startedAt) < silentAfter || e != nil && now.Sub(e.lastReadingAt) < silentAfter:
		case e == nil:
			all = append(all, data.SourceTrouble{Kind: data.TroubleSilent,
				Text: fmt.Sprintf("the data source has no input %q", name)})
		default:
			since, missing := "the start of agentd", ""
			if !e.lastReadingAt.IsZero() {
				since = e.lastReadingAt.UTC().Format(time.RFC3339)
			}
			if last := e.LastUnusedValue(grid.ReasonMissing); last.Problem != "" {
				missing = fmt.Sprintf("; last missing value: %s", last)
			}
			all = append(all, data.SourceTrouble{Kind: data.TroubleSilent, Text: fmt.Sprintf(
				"input %q: no readings received%s since %s%s", name, e.inputOrigin, since, missing)})
		}
	}
	return all
}
