// Package grid makes rows of readings, on a grid of times, by the recipe of a task. It is pure: readings come in, rows
// come out, and the same readings give the same rows to the bit, in whatever order they came within the lateness.
package grid
