// Package data is where a program's rows come from: an agent's own, and a coordinator's held-out ones.
//
// A [Source] is made from a [Config], a section of a configuration file, by the table in source.go. A program opens it
// once for each task, since a task says which columns it wants, and takes a view whenever it is about to work:
//
//	rows := source.Open(data.RowQuery{Features: t.Features, Target: t.Target, Prepare: problem.Preparer()})
//	view, err := rows.Snapshot()
//	for each round {
//		if rows.Changed() { // cheap: no data are read
//			view, err = rows.Snapshot()
//		}
//		train(view.Rows) // draws by index; a view never changes
//	}
//
// Rows that were read are not read again: a source that grows hands its new ones to Prepare, once each and in order,
// and appends them. An agent says in its hello how many rows it has, and trains on as many as the coordinator has heard
// of (round.Train.Samples), so that it may look at its source at any time.
//
// # What a new source costs
//
// A file with its implementation, a line in the table of source.go and its keys in [Config]; a harness in
// conformance_test.go, whose suite it must pass; its keys in packaging/agentd.yaml. Programs, doctor and laboratory
// have it then.
//
// # Sources that are not files
//
// A [Collector] collects by itself, from Start to Close: it hears a site's broker, or a command's output, and
// appends readings to a ring on disk. Changed compares two counters; Snapshot turns the readings that have come
// since into rows on the task's grid (package grid), and hands these to Prepare. A row is made when no reading may
// change it any more, so that rows are only ever appended. A ring that drops its oldest readings keeps the rows
// that were made of them until the task changes or the program starts again.
package data
