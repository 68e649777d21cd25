package graph

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readCSV reads an edge list in CSV format. It adds the edges after all nodes are known and numbered.
func (r *graphFileReader) readCSV(data []byte) error {
	c := csv.NewReader(bytes.NewReader(data))
	c.TrimLeadingSpace = true
	header, err := c.Read()
	if err != nil {
		return r.positionedCSVError(err)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	weighed := slices.Equal(header, []string{"from", "to", "weight"})
	if !weighed && !slices.Equal(header, []string{"from", "to"}) {
		return r.errorAt(filePosition{1, 1}, `the first line must be "from,to" or "from,to,weight", not %q`,
			strings.Join(header, ","))
	}
	type row struct {
		record []string
		weight *float64
		at     filePosition
	}
	var rows []row
	for {
		record, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r.positionedCSVError(err)
		}
		e := row{record: record, at: csvFieldPosition(c, 0)}
		for k, id := range record[:2] {
			if id == "" || !utf8.ValidString(id) {
				return r.errorAt(csvFieldPosition(c, k), "invalid node id %q: must be non-empty UTF-8 text", id)
			}
			r.indexByNodeID[id] = 0
		}
		if weighed {
			w, err := strconv.ParseFloat(record[2], 64)
			if err != nil {
				return r.errorAt(csvFieldPosition(c, 2), "%q is not a number", record[2])
			}
			e.weight = &w
		}
		rows = append(rows, e)
	}
	r.assignNodeNumbers()
	for _, e := range rows {
		if err := r.addEdge(e.at, e.record[0], e.record[1], e.weight); err != nil {
			return err
		}
	}
	return nil
}

// assignNodeNumbers sorts the node ids and numbers the nodes in this order. Ids are sorted numerically if all ids are
// whole numbers, and otherwise by bytes.
func (r *graphFileReader) assignNodeNumbers() {
	numbers := map[string]int{}
	for id := range r.indexByNodeID {
		r.nodeIDs = append(r.nodeIDs, id)
		if n, err := strconv.Atoi(id); err == nil {
			numbers[id] = n
		}
	}
	slices.SortFunc(r.nodeIDs, func(a, b string) int {
		if len(numbers) == len(r.nodeIDs) {
			return cmp.Or(cmp.Compare(numbers[a], numbers[b]), cmp.Compare(a, b)) // "1" and "01" are different ids
		}
		return cmp.Compare(a, b)
	})
	for i, id := range r.nodeIDs {
		r.indexByNodeID[id] = i
	}
}

func csvFieldPosition(c *csv.Reader, field int) filePosition {
	line, column := c.FieldPos(field)
	return filePosition{line, column}
}

func (r *graphFileReader) positionedCSVError(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return r.errorAt(filePosition{parse.Line, parse.Column}, "%v", parse.Err)
	}
	// The only other possible error is io.EOF, for an empty file.
	return r.errorAt(filePosition{}, `file is empty: the first line must be "from,to" or "from,to,weight"`)
}
