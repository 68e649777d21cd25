// Package data defines how a program gets rows to train on: an agent from its own data, a coordinator from held-out
// data.
//
// A [Source] is made from a [Config], which is a section of a configuration file; package sources has the table of all
// kinds. A task says which columns it wants, so a program opens its source once for each task. It takes a view whenever
// it is about to work:
//
//	rows := source.OpenRows(data.RowQuery{Features: t.Features, Target: t.Target,
//		Recipe:  recipe, // nil = a line is a row
//		Prepare: compiled.NewRowPreparer()})
//	view, err := rows.Snapshot()
//	for each round {
//		if rows.Changed() { // cheap: no data are read
//			view, err = rows.Snapshot()
//		}
//		train(view.Rows) // draws by index; a view never changes
//	}
//
// A source reads each row once, unless it has to begin again: the next view then has a ReplacementReason. If the source
// grows, it passes the new rows to Prepare, once each and in order, and appends them. An agent reports in its hello how
// many rows it has, and trains on as many as the coordinator knows of (agentround.StartTraining.MaxRows). It may
// therefore look at its source at any time.
//
// A [ReadingCollector] is a source that is not a file. From Start to Close it receives readings, from a broker or from
// the output of a command, and appends them to a ring on disk. Rows are made when a snapshot is taken, not when a
// message arrives: Snapshot turns the readings that have arrived since the last snapshot into rows on the task's time
// grid (package grid) and passes the rows to Prepare. A row is made when no later reading can change it, so rows are
// only appended. When the ring drops its oldest readings, the rows made of them stay until the task changes or the
// program starts again.
package data
