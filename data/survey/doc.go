// Package survey describes a source of rows for a person: its columns, what is wrong with its lines or readings, and
// which changes of the configuration correct it.
package survey
