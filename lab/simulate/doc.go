// Package simulate implements the command `fedlab simulate`. It runs an experiment from a file, shows the progress on
// the terminal, and writes result.json, curves.csv and plots.
package simulate
