// Package rule contains the aggregation rules. A rule combines the updates of a closed round into the change D of the
// model.
//
// A rule reads the updates of an [UpdateSet], whole or by blocks of columns, and writes D. A new rule needs a file, an
// entry in the table in rule.go, and a paragraph in docs/ALGORITHMS.md. Every rule must pass the tests in
// conformance_test.go.
package rule
