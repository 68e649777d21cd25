package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

type jsonNode struct {
	ID string   `json:"id"`
	X  *float64 `json:"x,omitempty"`
	Y  *float64 `json:"y,omitempty"`
}

type jsonEdge struct {
	From   string   `json:"from"`
	To     string   `json:"to"`
	Weight *float64 `json:"weight,omitempty"`
}

// readJSON reads a graph file in JSON format. It adds the edges after all nodes are known, because the keys "nodes" and
// "edges" may occur in any order.
func (r *graphFileReader) readJSON(data []byte) error {
	type placedEdge struct {
		jsonEdge
		at filePosition
	}
	var edges []placedEdge
	d := &positionedJSONDecoder{graphFileReader: r, fileContent: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	d.decoder.DisallowUnknownFields()
	err := d.readObject(func(key string, at filePosition) error {
		switch key {
		case "nodes":
			return d.readArray(func() error {
				var n jsonNode
				at, err := d.readElement(&n, "id, x and y")
				if err == nil {
					err = r.addNode(at, n)
				}
				return err
			})
		case "edges":
			return d.readArray(func() error {
				var e jsonEdge
				at, err := d.readElement(&e, "from, to and weight")
				edges = append(edges, placedEdge{e, at})
				return err
			})
		}
		return r.errorAt(at, `unknown key %q: use "nodes" and "edges"`, key)
	})
	if err != nil {
		return err
	}
	for _, e := range edges {
		for _, end := range []string{e.From, e.To} {
			if _, known := r.indexByNodeID[end]; !known {
				return r.errorAt(e.at, "edge %s–%s refers to the unknown node %q", e.From, e.To, end)
			}
		}
		if err := r.addEdge(e.at, e.From, e.To, e.Weight); err != nil {
			return err
		}
	}
	return nil
}

func (r *graphFileReader) addNode(at filePosition, n jsonNode) error {
	if n.ID == "" {
		return r.errorAt(at, `node has no "id"`)
	}
	if _, twice := r.indexByNodeID[n.ID]; twice {
		return r.errorAt(at, "duplicate node %s", n.ID)
	}
	if (n.X == nil) != (n.Y == nil) || len(r.nodeIDs) > 0 && (n.X == nil) != (r.nodePositions == nil) {
		return r.errorAt(at, "node %s: either all nodes or no nodes must have x and y", n.ID)
	}
	if n.X != nil {
		r.nodePositions = append(r.nodePositions, Point{*n.X, *n.Y})
	}
	r.indexByNodeID[n.ID] = len(r.nodeIDs)
	r.nodeIDs = append(r.nodeIDs, n.ID)
	return nil
}

// positionedJSONDecoder is a JSON decoder that knows its current line and column in the text.
type positionedJSONDecoder struct {
	*graphFileReader
	fileContent []byte
	decoder     *json.Decoder
}

func (d *positionedJSONDecoder) nextValuePosition() filePosition {
	at := int(d.decoder.InputOffset())
	for at < len(d.fileContent) && strings.IndexByte(" \t\r\n,:", d.fileContent[at]) >= 0 {
		at++
	}
	return d.filePositionOf(at)
}

// filePositionOf converts a byte offset in the text to a line and a column.
func (d *positionedJSONDecoder) filePositionOf(offset int) filePosition {
	before := d.fileContent[:min(offset, len(d.fileContent))]
	return filePosition{1 + bytes.Count(before, []byte{'\n'}), len(before) - bytes.LastIndexByte(before, '\n')}
}

// errorWithPosition adds a file position to a decoder error. If the error is a syntax error, it lies somewhere in the
// value that begins at the position at.
func (d *positionedJSONDecoder) errorWithPosition(at filePosition, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.errorAt(d.filePositionOf(len(d.fileContent)), "unexpected end of the graph file")
	}
	return d.errorAt(at, "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// readDelimiter reads one of the delimiters { } [ ]. It returns an error unless the delimiter is want.
func (d *positionedJSONDecoder) readDelimiter(want json.Delim) error {
	at := d.nextValuePosition()
	token, err := d.decoder.Token()
	if err != nil {
		return d.errorWithPosition(at, err)
	}
	if token != want {
		return d.errorAt(at, "expected %v, found %v", want, token)
	}
	return nil
}

// readObject reads a JSON object that must be the last value of the text. It calls member for each key, and member must
// read the key's value.
func (d *positionedJSONDecoder) readObject(member func(key string, at filePosition) error) error {
	if err := d.readDelimiter('{'); err != nil {
		return err
	}
	for d.decoder.More() {
		at := d.nextValuePosition()
		key, err := d.decoder.Token()
		if err != nil {
			return d.errorWithPosition(at, err)
		}
		if err := member(key.(string), at); err != nil {
			return err
		}
	}
	if err := d.readDelimiter('}'); err != nil {
		return err
	}
	at := d.nextValuePosition()
	if _, err := d.decoder.Token(); !errors.Is(err, io.EOF) {
		return d.errorAt(at, "unexpected data after the JSON graph")
	}
	return nil
}

// readArray reads a JSON array. It calls element before each value, and element must read the value.
func (d *positionedJSONDecoder) readArray(element func() error) error {
	if err := d.readDelimiter('['); err != nil {
		return err
	}
	for d.decoder.More() {
		if err := element(); err != nil {
			return err
		}
	}
	return d.readDelimiter(']')
}

// readElement decodes one JSON value into v and returns the position of the value. The parameter fields names the
// expected fields in an error text.
func (d *positionedJSONDecoder) readElement(v any, fields string) (filePosition, error) {
	at := d.nextValuePosition()
	if err := d.decoder.Decode(v); err != nil {
		err = d.errorWithPosition(at, err)
		var file *GraphFileError
		if errors.As(err, &file) {
			file.Problem += "; expected an object with " + fields
		}
		return at, err
	}
	return at, nil
}
