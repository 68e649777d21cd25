// Package rule says how the updates of a closed round become the change D of the model.
//
// A rule is pure: it reads the updates of a [UpdateSet], whole or by blocks of columns, and writes D. The table in
// rule.go names the rules; a new one costs a file, a line there, and a paragraph in docs/ALGORITHMS.md. Every rule must
// pass the suite in conformance_test.go.
package rule
