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

// csv reads the edge list. Edges wait until all nodes are known and numbered.
func (r *graphReader) csv(data []byte) error {
	c := csv.NewReader(bytes.NewReader(data))
	c.TrimLeadingSpace = true
	header, err := c.Read()
	if err != nil {
		return r.csvError(err)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	weighed := slices.Equal(header, []string{"from", "to", "weight"})
	if !weighed && !slices.Equal(header, []string{"from", "to"}) {
		return r.fail(filePosition{1, 1}, `the first line must be "from,to" or "from,to,weight", not %q`,
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
			return r.csvError(err)
		}
		e := row{record: record, at: fieldPlace(c, 0)}
		for k, id := range record[:2] {
			if id == "" || !utf8.ValidString(id) {
				return r.fail(fieldPlace(c, k), "%q is no id: want text", id)
			}
			r.index[id] = 0
		}
		if weighed {
			w, err := strconv.ParseFloat(record[2], 64)
			if err != nil {
				return r.fail(fieldPlace(c, 2), "%q is not a number", record[2])
			}
			e.weight = &w
		}
		rows = append(rows, e)
	}
	r.numberNodes()
	for _, e := range rows {
		if err := r.addEdge(e.at, e.record[0], e.record[1], e.weight); err != nil {
			return err
		}
	}
	return nil
}

// numberNodes orders the ids that were met: by number when all are whole numbers, else by bytes.
func (r *graphReader) numberNodes() {
	numbers := map[string]int{}
	for id := range r.index {
		r.ids = append(r.ids, id)
		if n, err := strconv.Atoi(id); err == nil {
			numbers[id] = n
		}
	}
	slices.SortFunc(r.ids, func(a, b string) int {
		if len(numbers) == len(r.ids) {
			return cmp.Or(cmp.Compare(numbers[a], numbers[b]), cmp.Compare(a, b)) // "1" and "01" are two ids
		}
		return cmp.Compare(a, b)
	})
	for i, id := range r.ids {
		r.index[id] = i
	}
}

func fieldPlace(c *csv.Reader, field int) filePosition {
	line, column := c.FieldPos(field)
	return filePosition{line, column}
}

func (r *graphReader) csvError(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return r.fail(filePosition{parse.Line, parse.Column}, "%v", parse.Err)
	}
	// io.EOF: there is nothing else to fail
	return r.fail(filePosition{}, `empty; the first line must be "from,to" or "from,to,weight"`)
}
