package data

import "github.com/fedmesh/fedmesh/data/grid"

// Reading is the value of an input at one time. Rows are made from readings.
type Reading = grid.Reading

// UnusedReason is the reason for rejecting a reading or a value of a row. Package grid defines all reasons.
type UnusedReason = grid.UnusedReason
