// Package grid makes rows of readings, on a grid of times, by the recipe of a task. It is pure: readings come in, rows
// come out.
//
//	g, err := grid.NewRowBuilder(grid.RowBuilderConfig{Recipe: recipe, ExpandedFeatures: features, Target: target,
//		Zone: zone})
//	for each reading, in the order of arrival {
//		g.Add(reading)
//		rows := g.TakeRows() // the new ones
//	}
//
// # Time
//
// Grid points are the multiples of the recipe's step, in UTC. Point t stands for the readings with a time in (t −
// step, t], joined. A row at t sees points up to t, its target excepted.
//
// The watermark is the time of the newest reading, less the lateness. A reading that is older than the watermark when
// it comes is late. Others wait in a queue, in order of time and input, until the watermark has passed them, so that
// readings which come in another order within the lateness make the same rows, to the bit. The same input at the same
// time counts once: the first that came. On leaving the queue, in order of time, it is decided whether an input is
// stuck, or jumps.
//
// A row is made when the watermark has passed t, and the point of its target. Rows are made in order of time, and none
// is changed or made later. A target whose input has a wait is a label: its readings are of time t and may come later
// than others. The row, and those behind it, wait until the label is there or the watermark has passed t + wait.
//
// # Bounds
//
// The queue has at most Config.MaxQueuedReadings readings; beyond, the oldest leave early, and readings before them are
// [ReasonNoRoom]. Each input has as many points in memory as its columns, and the wait for the target, reach back.
// After a silence of [MaxSilentPoints] points rows begin anew, so that a wrong clock costs no time; means and classes
// of "missing: mean" stay.
package grid
