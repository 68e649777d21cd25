// Package twin checks that the production code reproduces golden trajectories of every documented algorithm. The Python
// script twin.py computes the trajectories directly from the published equations and shares no code with the programs.
// The golden files contain all random draws, so that the test needs no random numbers. To regenerate the files, run
// `python3 twin.py make testdata`.
package twin
