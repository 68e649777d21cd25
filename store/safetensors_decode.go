package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"unicode/utf8"
)

// safetensorsEntry describes one tensor of the header. Its data is in the bytes [begin, end) of the data section.
type safetensorsEntry struct {
	name, dtype string
	shape       []int64
	begin, end  int64
}

// DecodeSafetensors returns the tensors of a safetensors file in the order of their data, and its metadata, which may
// be nil. It accepts only F32 and F64. The tensors must cover the data exactly, without overlap, gap or remainder. Each
// Data is a slice of p, so only the header requires new memory.
func DecodeSafetensors(p []byte) ([]Tensor, map[string]string, error) {
	n, err := safetensorsHeaderLen(p, int64(len(p)))
	if err != nil {
		return nil, nil, err
	}
	data := p[8+n:]
	entries, metadata, err := parseSafetensorsHeader(p[8:8+n], int64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	tensors := tensorsWithoutData(entries)
	for i, e := range entries {
		tensors[i].Data = data[e.begin:e.end:e.end]
	}
	return tensors, metadata, nil
}

// tensorsWithoutData converts entries to tensors with nil Data.
func tensorsWithoutData(entries []safetensorsEntry) []Tensor {
	tensors := make([]Tensor, len(entries))
	for i, e := range entries {
		shape := make([]int, len(e.shape))
		for j, d := range e.shape {
			shape[j] = int(d)
		}
		tensors[i] = Tensor{Name: e.name, DType: e.dtype, Shape: shape}
	}
	return tensors
}

// ReadSafetensorsLayout returns the tensors of a safetensors file without their data. It reads only the header.
func (d Disk) ReadSafetensorsLayout(path string) ([]Tensor, error) {
	f, err := d.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	tensors, err := readSafetensorsLayout(f)
	return tensors, errors.Join(err, f.Close())
}

func readSafetensorsLayout(f File) ([]Tensor, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var head [8]byte
	have, err := io.ReadFull(f, head[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	n, err := safetensorsHeaderLen(head[:have], info.Size())
	if err != nil {
		return nil, err
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(f, header); err != nil {
		return nil, err
	}
	entries, _, err := parseSafetensorsHeader(header, info.Size()-8-n)
	return tensorsWithoutData(entries), err
}

// safetensorsHeaderLen returns the header length from the first 8 bytes of a file with size bytes.
func safetensorsHeaderLen(p []byte, size int64) (int64, error) {
	if len(p) < 8 {
		return 0, errors.New("store: not a safetensors file: shorter than 8 bytes")
	}
	n := binary.LittleEndian.Uint64(p)
	if n > maxSafetensorsHeader || int64(n) > size-8 {
		return 0, fmt.Errorf(
			"store: not a safetensors file: header of %d bytes in a file of %d bytes (header limit %d)",
			n, size, maxSafetensorsHeader)
	}
	return int64(n), nil
}

// parseSafetensorsHeader parses and validates the header of a file with dataLen bytes of data.
func parseSafetensorsHeader(header []byte, dataLen int64) ([]safetensorsEntry, map[string]string, error) {
	fail := func(err error) ([]safetensorsEntry, map[string]string, error) {
		return nil, nil, fmt.Errorf("store: safetensors header: %w", err)
	}
	if len(header) == 0 || header[0] != '{' || !utf8.Valid(header) {
		return fail(errors.New("the text is not a JSON object in UTF-8"))
	}
	fields, err := splitJSONObject(header)
	if err != nil {
		return fail(err)
	}
	var metadata map[string]string
	var entries []safetensorsEntry
	for _, f := range fields {
		if f.key == metadataKey {
			metadata, err = parseSafetensorsMetadata(f.value)
		} else {
			var e safetensorsEntry
			e, err = parseSafetensorsEntry(f.key, f.value)
			entries = append(entries, e)
		}
		if err != nil {
			return fail(fmt.Errorf("%q: %w", f.key, err))
		}
	}
	if err := checkDataCoverage(entries, dataLen); err != nil {
		return fail(err)
	}
	return entries, metadata, nil
}

// checkDataCoverage sorts the entries by offset and verifies that they cover the data without overlap or gap.
func checkDataCoverage(entries []safetensorsEntry, dataLen int64) error {
	sort.Slice(entries, func(i, j int) bool {
		a, b := &entries[i], &entries[j]
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name)) < 0
	})
	covered := int64(0)
	for _, e := range entries {
		if e.begin != covered || e.end < e.begin || e.end > dataLen {
			return fmt.Errorf("%q: offsets [%d, %d] overlap, leave a gap or exceed the %d bytes of data",
				e.name, e.begin, e.end, dataLen)
		}
		if err := checkTensorShape(e.dtype, e.shape, e.end-e.begin); err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
		covered = e.end
	}
	if covered != dataLen {
		return fmt.Errorf("%d bytes of data belong to no tensor", dataLen-covered)
	}
	return nil
}

type jsonObjectField struct {
	key   string
	value json.RawMessage
}

// splitJSONObject returns the fields of a JSON object in order. It rejects duplicate keys, which a map would hide and
// the format forbids.
func splitJSONObject(text []byte) ([]jsonObjectField, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var fields []jsonObjectField
	seen := make(map[string]bool)
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		f := jsonObjectField{key: key.(string)} // the decoder guarantees that a key is a string
		if seen[f.key] {
			return nil, fmt.Errorf("%q occurs twice", f.key)
		}
		seen[f.key] = true
		if err := dec.Decode(&f.value); err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected text after the JSON object")
	}
	return fields, nil
}

func parseSafetensorsMetadata(text []byte) (map[string]string, error) {
	fields, err := splitJSONObject(text)
	if err != nil {
		return nil, err
	}
	metadata := make(map[string]string, len(fields))
	for _, f := range fields {
		var value *string
		if err := json.Unmarshal(f.value, &value); err != nil || value == nil {
			return nil, fmt.Errorf("%q is not a string", f.key)
		}
		metadata[f.key] = *value
	}
	return metadata, nil
}

func parseSafetensorsEntry(name string, text []byte) (safetensorsEntry, error) {
	e := safetensorsEntry{name: name}
	fields, err := splitJSONObject(text)
	if err != nil {
		return e, err
	}
	var offsets []int64
	for _, f := range fields {
		switch f.key {
		case "dtype":
			err = json.Unmarshal(f.value, &e.dtype)
		case "shape":
			e.shape, err = parseJSONInts(f.value)
		case "data_offsets":
			offsets, err = parseJSONInts(f.value)
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", f.key, err)
		}
	}
	if e.shape == nil || len(offsets) != 2 {
		return e, errors.New("the tensor must have dtype, shape and data_offsets with two elements")
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, nil
}

// parseJSONInts parses a JSON array of integers. It rejects null, which json.Unmarshal accepts as an empty array or
// zero.
func parseJSONInts(text []byte) ([]int64, error) {
	var found []*int64
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, err
	}
	if found == nil || slices.Contains(found, nil) {
		return nil, errors.New("expected integers, but found null")
	}
	ints := make([]int64, len(found))
	for i, v := range found {
		ints[i] = *v
	}
	return ints, nil
}
