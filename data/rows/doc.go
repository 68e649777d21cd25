// Package rows makes rows of lines or readings and stores them. Several callers that want the same rows share them. Few
// writtenRowCount are in memory; many are in a file.
package rows
