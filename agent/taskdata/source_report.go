package taskdata

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/observe"
)

// reportInterval is the interval between reports about the data source.
const reportInterval = 10 * time.Second

// sourceReporter returns the reporter of the task's rows, or of the data source if no task has arrived. It returns nil
// if neither supports reports.
func (p *TaskDataLoader) sourceReporter() data.QualityReporter {
	if p.announced != nil {
		if r, reports := p.announced.Rows.(data.QualityReporter); reports {
			return r
		}
	}
	r, _ := p.cfg.Source.(data.QualityReporter)
	return r
}

// reportSourceIfDue reports the values that the source has received, if a report is due. While the rows do not fit the
// task, it also checks for new data, because no announcement may follow. Otherwise it only reads new data for the next
// report, so that the report names a sensor whose values can no longer be used.
func (p *TaskDataLoader) reportSourceIfDue(now time.Time) {
	r := p.sourceReporter()
	if r == nil || now.Before(p.nextReportAt) {
		return
	}
	p.nextReportAt = now.Add(reportInterval)
	before := p.previousReport
	p.previousReport = r.QualityReport()
	p.core.Observer.Observe(SourceReportReceived{p.previousReport, before, p.cfg.ShowsValues})
	rows, isUpdatable := r.(data.QualityUpdater)
	switch {
	case p.misfit != nil:
		p.rereadChangedRows()
	case isUpdatable && !p.isUpdatingReport:
		p.isUpdatingReport = true
		p.core.RunJobThenOnLoop(p.core.DataJobs, func() func() {
			rows.UpdateQualityReport()
			return func() { p.isUpdatingReport = false }
		})
	}
}

// maxInputsWithSeries is the maximum number of inputs with their own metric series. It limits the series for files with
// thousands of columns.
const maxInputsWithSeries = 64

// resultUsed is the metric label for values that were used. The other labels are the reasons why values were not used.
const resultUsed = "used"

var (
	dataValues = &observe.Metric{Name: "data_values_total", LabelNames: []string{"input", "result"},
		Help: "Data values, by input or column (only the first 64) and result. The results gap and no_label count " +
			"rows that could not be built.",
		MaxLabelValues: maxInputsWithSeries}
	inputValue = &observe.Metric{Name: "input_value", Kind: observe.GaugeKind, LabelNames: []string{"input"},
		Help: "Newest value of an input (only the first 64), in the task's unit or as the number of the class. Only " +
			"with metrics.values.",
		MaxLabelValues: maxInputsWithSeries}
	dataTroubles = observe.GaugeByLabel("data_troubles",
		"Number of current problems that prevent new readings, by kind. `agentd status` lists these problems.", "kind",
		observe.NamesAsStrings(troubleKinds(false)))
	dataDoubts = observe.GaugeByLabel("data_doubts",
		"Number of inputs, columns and topics with doubtful data, by kind of doubt. `agentd status` lists these "+
			"inputs.",
		"kind", observe.NamesAsStrings(troubleKinds(true)))
	newestTime = observe.OptionalGauge("data_newest_timestamp_seconds",
		"Newest timestamp of the input with the oldest data. Only for data with times.")
	unusableRatio = observe.OptionalGauge("data_unusable_ratio",
		"Largest unusable share of any file's lines or any input's values. Above data.max_bad the device declines "+
			"rounds.")
)

// troubleKinds returns the kinds of trouble with a data source. If doubtful is true, it returns the kinds with doubtful
// data, during which readings still arrive. Otherwise it returns all other kinds.
func troubleKinds(doubtful bool) []data.TroubleKind {
	return slices.DeleteFunc(data.TroubleKinds(),
		func(k data.TroubleKind) bool { return k.ReadingsStillArrive() != doubtful })
}

// SourceReportValue is the name of the status value with type data.QualityReport.
const SourceReportValue = "source report"

// SourceReportReceived reports how many values the data source has received and how many of them were not used.
type SourceReportReceived struct {
	data.QualityReport
	PreviousReport data.QualityReport // report contained in the previous event
	ShowsValues    bool               // whether the newest values become metrics
}

// Describe implements observe.Event.
func (e SourceReportReceived) Describe(d *observe.EventDescription) {
	e.describeColumns(d)
	d.ShowStatusValue(SourceReportValue, e.QualityReport)
	d.SetGauge(unusableRatio, e.LargestWrongShare)
	texts := map[data.TroubleKind][]string{}
	for _, t := range e.Troubles {
		texts[t.Kind] = append(texts[t.Kind], t.Text)
	}
	for _, kind := range data.TroubleKinds() {
		metric := dataTroubles
		if kind.ReadingsStillArrive() {
			metric = dataDoubts
		}
		d.SetGauge(metric, float64(len(texts[kind])), string(kind))
		if name := "data (" + string(kind) + ")"; len(texts[kind]) > 0 {
			d.RaiseCondition(name, strings.Join(texts[kind], "; "), kind.Remedy())
		} else {
			d.ResolveCondition(name) // This also resolves a condition that an earlier agent of this process has raised.
		}
	}
}

// describeColumns adds the values received since the previous event to the counters.
func (e SourceReportReceived) describeColumns(d *observe.EventDescription) {
	before := map[string]*data.ColumnReport{}
	for i := range e.PreviousReport.Columns {
		before[e.PreviousReport.Columns[i].Name] = &e.PreviousReport.Columns[i]
	}
	oldest := int64(0)
	for i := range e.Columns {
		c := &e.Columns[i]
		was, known := before[c.Name]
		if !known {
			was = &data.ColumnReport{}
			if i <= maxInputsWithSeries { // All further inputs share one metric series.
				for _, result := range append(observe.NamesAsStrings(data.UnusedReasons()), resultUsed) {
					d.AddToCounter(dataValues, 0, c.Name, result)
				}
			}
		}
		addIncrease(d, c.Name, resultUsed, c.Used, was.Used)
		for _, why := range slices.Sorted(maps.Keys(c.Unused)) {
			addIncrease(d, c.Name, string(why), c.Unused[why], was.Unused[why])
			logUnusedValues(d, c, why, was.Unused[why])
		}
		if e.ShowsValues && c.NewestValue != nil {
			d.SetGauge(inputValue, *c.NewestValue, c.Name)
		}
		if c.NewestTime != 0 && (oldest == 0 || c.NewestTime < oldest) {
			oldest = c.NewestTime
		}
	}
	if oldest != 0 {
		d.SetGauge(newestTime, float64(oldest)/1e9)
	}
}

// addIncrease adds the values of an input since the previous event to the counter. A lower value n means that the
// source was reset to 0, for example after a file was replaced.
func addIncrease(d *observe.EventDescription, input, result string, n, before uint64) {
	if n < before {
		before = 0
	}
	if n > before {
		d.AddToCounter(dataValues, float64(n-before), input, result)
	}
}

// logUnusedValues logs that values of an input are not used, with the reason why. It logs only the 1st, 10th, 100th, …
// unused value.
func logUnusedValues(d *observe.EventDescription, c *data.ColumnReport, why data.UnusedReason, before uint64) {
	n := c.Unused[why]
	if n == 0 || before > 0 && len(strconv.FormatUint(n, 10)) <= len(strconv.FormatUint(before, 10)) {
		return
	}
	last := c.LastUnusedValue(why)
	attributes := []any{"input", c.Name, "reason", why, "values", n, "used", c.Used, "last", last.Where}
	if last.Problem != "" {
		attributes = append(attributes, "problem", last.Problem)
	}
	attributes = append(attributes, "remedy", data.TroubleUnusedValues.Remedy())
	d.Log(observe.Warn, "some input values are not used", attributes...)
}
