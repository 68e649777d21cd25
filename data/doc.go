// Package data defines how a program obtains rows to train on: an agent from its own data, a coordinator from held-out
// data.
//
// A [Source] is created from a [Config], a section of the configuration file. Package sources has a table of all kinds.
// The columns depend on the task, so a program opens the rows of its source once per task. It takes a snapshot before
// it starts to work:
//
//	rows := source.OpenRows(data.RowQuery{Features: t.Features, Target: t.Target,
//		Recipe:  recipe, // nil: each line is a row
//		Preparer: compiled.NewRowPreparer()})
//	view, err := rows.Snapshot()
//	for each round {
//		if rows.Changed() { // cheap: reads no data
//			view, err = rows.Snapshot()
//		}
//		train(view.Rows) // draws rows by index; a snapshot never changes
//	}
//
// A source reads each row once, unless it must start again from the first row; the next snapshot then has a
// ReplacementReason. When the source grows, the new rows are passed to the Preparer, once each and in order, and
// appended. An agent reports its number of rows in its hello message, and trains on at most the number that the
// coordinator knows (agentround.StartTraining.MaxRows). It may therefore take a snapshot at any time.
//
// A [ReadingCollector] is a source that is not a file. From Start to Close it receives readings from a broker or from
// the output of a command, and appends them to a ring on disk. Rows are made by Snapshot, not when a message arrives.
// Snapshot converts the new readings into rows on the task's time grid (package grid) and passes the rows to the
// Preparer. A row is made when no later reading can change it, so rows are only appended. When the ring drops its
// oldest readings, their rows remain until the task changes or the program restarts.
package data
