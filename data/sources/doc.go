// Package sources implements the kinds of sources: CSV files, topics of an MQTT broker, and lines of a pipe or a
// command. [Open] makes a source of a section of the configuration.
//
// # Adding a kind
//
// A kind is a file with its implementation, a line in the table of sources.go and its keys in data.Config. It must pass
// the suite in conformance_test.go, which needs a harness that writes what the source reads. docs/ARCHITECTURE.md lists
// all steps.
package sources
