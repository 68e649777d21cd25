// Package rows makes rows from lines or readings and stores them. Callers that require the same rows share them. Small
// numbers of rows are stored in memory, large numbers in a file.
package rows
