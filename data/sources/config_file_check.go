package sources

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/spec"
)

// CheckConfigAgainstFile adds problems that validation without the file cannot find: an unreadable file, a wrong
// delimiter, columns that are missing in the header, and paths that look like parts of topics.
func CheckConfigAgainstFile(c *data.Config, problems *spec.ProblemList, section string) {
	if c.Kind() == data.SourceMQTT {
		checkTopicPaths(c, problems, section)
	}
	if c.Kind() != data.SourceCSV {
		return
	}
	source, err := openCSV(c)
	if err != nil {
		return // CheckConfig reports this error
	}
	s := &csvSurvey{file: source.(*csvFile)}
	s.dialect = s.file.filter.dialect
	s.header, err = readFileHeader(c.CSVPath, &s.dialect)
	keys := map[string]string{} // configuration keys by column
	if c.TimeColumn != "" {
		keys[c.TimeColumn] = "time"
	}
	for _, name := range slices.Sorted(maps.Keys(c.ColumnByInput)) {
		keys[c.ColumnByInput[name]] = "columns." + name
	}
	for _, name := range slices.Sorted(maps.Keys(c.RequiredTextByColumn)) {
		keys[name] = "where." + name
	}
	names := slices.Sorted(maps.Keys(keys))
	if d, found := s.findBetterDelimiter(names); found && (len(names) > 0 || len(s.header) <= 1) {
		problems.Require(false, section+".delimiter", "the columns of %s are separated by %q", c.CSVPath,
			string(d))
		return
	}
	if problems.AddError(section+".csv", err); err != nil {
		return
	}
	for _, name := range names {
		near := s.dialect.skipRowsHint(c.CSVPath, []string{name})
		if n := spec.ClosestSpelling(name, s.header, normalizeColumnName); n != "" && near == "" {
			near = fmt.Sprintf("; did you mean %q?", n)
		}
		problems.Require(slices.Contains(s.header, name), section+"."+keys[name], "%s has no column %q in its header%s",
			c.CSVPath, name, near)
	}
}
