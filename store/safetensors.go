package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"unicode/utf8"
)

// Tensor is one named array of a safetensors file.
type Tensor struct {
	Name  string // name of the tensor, as non-empty UTF-8
	DType string // element type, "F32" or "F64"
	Shape []int  // dimensions; empty for a scalar
	Data  []byte // elements, little endian and row major
}

const (
	metadataKey = "__metadata__"
	// maxSafetensorsHeader is the maximum length of the JSON header. The format allows 100 MB. Our headers contain the
	// names and numbers of a task's columns.
	maxSafetensorsHeader = 16 << 20
	maxTensorRank        = 16
	maxTensorDim         = 1<<31 - 1 // fits into an int on every platform
)

func dtypeSize(dtype string) (int, bool) {
	switch dtype {
	case "F32":
		return 4, true
	case "F64":
		return 8, true
	}
	return 0, false
}

// EncodeSafetensors returns the tensors as a safetensors file: header length, JSON header padded with spaces to a
// multiple of 8, and the data without gaps. Equal content gives equal bytes. Metadata is sorted by key. Tensors are
// sorted like in the reference implementation: F64 before F32 for alignment, then by name.
func EncodeSafetensors(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	pieces, err := EncodeSafetensorsPieces(tensors, metadata)
	return slices.Concat(pieces...), err
}

// EncodeSafetensorsPieces is like EncodeSafetensors, but returns the file in pieces: the length and header, and then
// the Data of each tensor without copying it.
func EncodeSafetensorsPieces(tensors []Tensor, metadata map[string]string) ([][]byte, error) {
	sorted := slices.Clone(tensors)
	sort.Slice(sorted, func(i, j int) bool {
		a, b := &sorted[i], &sorted[j]
		return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name)) < 0
	})
	if err := checkTensors(sorted); err != nil {
		return nil, err
	}
	header, err := encodeSafetensorsHeader(sorted, metadata)
	if err != nil {
		return nil, err
	}
	pieces := [][]byte{append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)}
	for _, t := range sorted {
		pieces = append(pieces, t.Data)
	}
	return pieces, nil
}

func checkTensors(tensors []Tensor) error {
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		if t.Name == "" || t.Name == metadataKey || !utf8.ValidString(t.Name) || seen[t.Name] {
			return fmt.Errorf("store: tensor name %q is empty, reserved, not UTF-8 or used twice", t.Name)
		}
		seen[t.Name] = true
		shape := make([]int64, len(t.Shape))
		for i, d := range t.Shape {
			shape[i] = int64(d)
		}
		if err := checkTensorShape(t.DType, shape, int64(len(t.Data))); err != nil {
			return fmt.Errorf("store: tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// checkTensorShape returns an error if a tensor of this type and shape does not have exactly size bytes.
func checkTensorShape(dtype string, shape []int64, size int64) error {
	width, ok := dtypeSize(dtype)
	if !ok {
		return fmt.Errorf("unsupported data type %q: use F32 or F64", dtype)
	}
	if len(shape) > maxTensorRank {
		return fmt.Errorf("the shape has %d dimensions, but at most %d are supported", len(shape), maxTensorRank)
	}
	for _, d := range shape {
		if d < 0 || d > maxTensorDim {
			return fmt.Errorf("a dimension of the shape is %d, but must be between 0 and %d", d, maxTensorDim)
		}
	}
	want := int64(width)
	if slices.Contains(shape, 0) {
		want = 0
	}
	for _, d := range shape {
		if want > 0 && want > size/d { // overflow-safe form of want*d > size
			return fmt.Errorf("shape %v of type %s requires more than the %d bytes of the tensor", shape, dtype, size)
		}
		want *= d
	}
	if want != size {
		return fmt.Errorf("shape %v of type %s requires %d bytes, but the tensor has %d", shape, dtype, want, size)
	}
	return nil
}

// encodeSafetensorsHeader encodes the header in the order and format of the reference implementation, without optional
// spaces.
func encodeSafetensorsHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	if len(metadata) > 0 {
		fmt.Fprintf(&b, "%s:{", quoteJSON(metadataKey))
		for i, key := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
				return nil, fmt.Errorf("store: safetensors metadata %q is not UTF-8", key)
			}
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s:%s", quoteJSON(key), quoteJSON(metadata[key]))
		}
		b.WriteByte('}')
	}
	offset := 0
	for _, t := range tensors {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s:{"dtype":"%s","shape":[`, quoteJSON(t.Name), t.DType)
		for i, d := range t.Shape {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprint(&b, d)
		}
		fmt.Fprintf(&b, `],"data_offsets":[%d,%d]}`, offset, offset+len(t.Data))
		offset += len(t.Data)
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > maxSafetensorsHeader {
		return nil, fmt.Errorf("store: safetensors header has %d bytes, but at most %d are allowed",
			b.Len(), maxSafetensorsHeader)
	}
	return b.Bytes(), nil
}

// quoteJSON encodes s as a JSON string, without the HTML escapes of encoding/json. s must be UTF-8.
func quoteJSON(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("store: cannot encode a string: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
