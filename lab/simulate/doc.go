// Package simulate is the command `fedlab simulate`: an experiment from a file, its progress on the terminal, and what
// it found as result.json, curves.csv and plots.
package simulate
