// Package grid converts readings into rows on a time grid, as the recipe of a task defines. It performs no I/O.
//
//	g, err := grid.NewRowBuilder(grid.RowBuilderConfig{Recipe: recipe, ExpandedFeatures: features, Target: target,
//		CalendarZone: zone})
//	for each reading, in the order of arrival {
//		g.AddReading(reading)
//		rows := g.TakeRows() // the new rows
//	}
//
// # Time
//
// Grid points are the multiples of the recipe's step, in UTC. The point at time t aggregates the readings with a time
// in (t − step, t]. A row at t uses points up to t, except for its target, which may use a later point.
//
// The watermark is the time of the newest reading minus the lateness. A reading that is older than the watermark on
// arrival is late. Other readings wait in a queue, ordered by time and input, until the watermark has passed them. So
// any order of arrival within the lateness produces bit-identical rows. If several readings have the same input, source
// and time, only the first is used. Stuck inputs and jumps are detected when readings leave the queue, in order of
// time.
//
// A row is made when the watermark has passed t and the point of the row's target. Rows are made in order of time and
// never change. A target whose input has a label lateness is called a label: its reading has the time t but may arrive
// later. The row and all later rows wait until the label has arrived or the watermark has passed t + label lateness.
//
// # Bounds
//
// The queue holds at most RowBuilderConfig.MaxQueuedReadings readings. If it is full, the oldest readings leave it
// early, and readings older than these are rejected with [ReasonNoRoom]. For each input, memory holds the points that
// its columns and the wait for the target require. After [MaxSilentPoints] points without a reading the grid starts
// again at the next reading, so that a wrong clock does not cost computing time. The means and classes for "missing:
// mean" are kept.
package grid
