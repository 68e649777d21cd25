// Package survey describes a source of rows for users: its columns, the faults of its lines or readings, and the
// configuration changes that correct them.
package survey
