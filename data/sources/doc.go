// Package sources implements the kinds of sources: CSV files, topics of an MQTT broker, and lines of a pipe or a
// command. [Open] creates a source from a section of the configuration.
//
// # From a reading to a row
//
//  1. An intake receives a message or a line (mqtt_source.go, line_source.go). Package payload decodes it,
//     payload_parser.go assigns its values to inputs, and the recorder writes these readings to a ring on disk
//     (reading_recorder.go).
//  2. A snapshot of the rows (data.QueriedRows) makes gridRowMaker read its feed (rows/grid_row_maker.go):
//     ringReadingFeed reads the ring, csvReadingFeed the new lines of the files (csv_reading_feed.go,
//     file_follower.go). No rows are made when a message arrives.
//  3. rows.TimeOrderCheck detects readings from wrong clocks. Package grid makes a row when no later reading can
//     change it.
//  4. rows.RawRows stores the rows. rows.TaskRows prepares them for the task and returns the snapshot.
//
// A CSV file without a time column contains rows instead of readings: csvRowMaker makes a row from each line.
//
// # Adding a kind
//
// A kind consists of a file with its implementation, a line in the table of sources.go and its keys in data.Config. It
// must pass the suite in conformance_test.go, which requires a harness that writes data for the source.
// docs/ARCHITECTURE.md lists all steps.
package sources
