package data

import "github.com/fedmesh/fedmesh/data/grid"

// Reading is a value of an input at a time, of a source whose rows are made of readings.
type Reading = grid.Reading

// UnusedReason is why a reading, or a value of a row, is not used; package grid has them all.
type UnusedReason = grid.UnusedReason
