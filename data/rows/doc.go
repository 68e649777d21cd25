// Package rows makes rows from lines or readings and stores them. Callers that require the same rows share them. A
// small number of rows is stored in memory, a large number in a file.
package rows
