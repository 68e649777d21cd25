package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/data"
)

// dataReportInterval is the time between two looks at what a source has collected.
const dataReportInterval = 10 * time.Second

// reporter tells what came of the agent's data: the rows of its task, and before there are any, the source. It is nil
// if these tell nothing.
func (a *Agent) reporter() data.Reporter {
	if a.local != nil {
		if r, tells := a.local.rows.(data.Reporter); tells {
			return r
		}
	}
	r, _ := a.cfg.Data.(data.Reporter)
	return r
}

// reportCollected tells what has come of the data. While that is too little for the task, the agent looks at the rows
// again: nobody else has it do so, and more come by themselves.
func (a *Agent) reportCollected(now time.Time) {
	r := a.reporter()
	if r == nil || now.Before(a.nextDataReportAt) {
		return
	}
	a.nextDataReportAt = now.Add(dataReportInterval)
	before := a.lastDataReport
	a.lastDataReport = r.Report()
	a.cfg.Observer.Observe(DataCollected{a.lastDataReport, before})
	if a.misfit != nil {
		a.checkForNewData()
	}
}
