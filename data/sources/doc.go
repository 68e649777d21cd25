// Package sources implements the kinds of sources: CSV files, topics of an MQTT broker, and lines of a pipe or a
// command. [Open] makes a source of a section of the configuration.
//
// # From a reading to a row
//
//  1. An intake receives a message or a line (mqtt_source.go, line_source.go). payload_parser.go turns it into
//     readings, which the recorder writes to a ring on disk (reading_recorder.go).
//  2. A snapshot of the rows (data.Rows) has gridRowMaker read its feed (rows/grid_row_maker.go): ringReadingFeed
//     reads the ring, csvReadingFeed the new lines of the files (csv_reading_feed.go, file_follower.go). Nothing is
//     made when a message arrives.
//  3. rows.TimeOrderCheck recognises readings with wrong clocks. Package grid makes a row when no later reading can
//     change it.
//  4. rows.RawRows stores the rows. rows.TaskRows brings them into the terms of the task, and returns the view.
//
// A CSV file without a column for the time has rows and no readings: csvRowMaker makes a row of each line.
//
// # Adding a kind
//
// A kind is a file with its implementation, a line in the table of sources.go and its keys in data.Config. It must pass
// the suite in conformance_test.go, which needs a harness that writes what the source reads. docs/ARCHITECTURE.md lists
// all steps.
package sources
