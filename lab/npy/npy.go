// Package npy reads and writes arrays in numpy's .npy file format (version 1.0, little-endian, C order). A file
// consists of a short header and the raw numbers.
package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Element lists the element types of arrays in memory. Read converts other numeric types in a file to the requested
// element type.
type Element interface {
	float32 | float64 | int64 | uint8
}

const magic = "\x93NUMPY"

// Write writes an array of the given shape in row-major order. It returns write errors of w, and panics if the shape
// does not match the length of data.
func Write[T Element](w io.Writer, data []T, shape ...int) error {
	if n := size(shape); n != len(data) {
		panic(fmt.Sprintf("npy: shape %v does not match %d numbers", shape, len(data)))
	}
	b := bufio.NewWriter(w)
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", describe(data), tuple(shape))
	// The length of the header is stored in two bytes. The header ends with a line feed, and its total size is a
	// multiple of 64 bytes.
	const before = len(magic) + 4
	header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n"
	_, _ = b.WriteString(magic + "\x01\x00") // Ignore this error, because Flush reports it again.
	_ = binary.Write(b, binary.LittleEndian, uint16(len(header)))
	_, _ = b.WriteString(header)
	_ = binary.Write(b, binary.LittleEndian, data)
	return b.Flush()
}

func size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func tuple(shape []int) string {
	var b strings.Builder
	b.WriteString("(")
	for _, d := range shape {
		fmt.Fprintf(&b, "%d, ", d)
	}
	text := strings.TrimSuffix(b.String(), " ")
	if len(shape) > 1 {
		text = strings.TrimSuffix(text, ",")
	}
	return text + ")"
}

func describe[T Element](data []T) string {
	switch any(data).(type) {
	case []float32:
		return "<f4"
	case []float64:
		return "<f8"
	case []int64:
		return "<i8"
	}
	return "|u1"
}

// maxNumbers is the maximum number of elements that a header may declare. maxDimensions is the maximum length of the
// shape.
const (
	maxNumbers    = 1<<31 - 1 // fits an int on every CPU architecture
	maxDimensions = 8
)

// Regular expressions for the fields of the header, which may appear in any order.
var (
	descrField = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([<>|=]?)([a-z][0-9]+)['"]`)
	orderField = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	shapeField = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([0-9, ]*)\)`)
)

// Read reads an array of floats, integers or booleans in C order and converts the elements to type T. An array with the
// empty shape () is read as a single number.
func Read[T Element](r io.Reader) (data []T, shape []int, err error) {
	b := bufio.NewReader(r)
	header, err := readHeader(b)
	if err != nil {
		return nil, nil, err
	}
	descr, order, dims := descrField.FindStringSubmatch(header), orderField.FindStringSubmatch(header),
		shapeField.FindStringSubmatch(header)
	switch {
	case descr == nil || order == nil || dims == nil:
		return nil, nil, fmt.Errorf("the header %q lacks descr, fortran_order or shape", header)
	case order[1] != "False":
		return nil, nil, errors.New("the array is in Fortran order: save numpy.ascontiguousarray(array) instead")
	case descr[1] == ">":
		return nil, nil, errors.New("the array is big-endian: save it as little-endian")
	}
	n := 1
	for text := range strings.SplitSeq(dims[1], ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		d, err := strconv.Atoi(text)
		if err != nil || d > 0 && n > maxNumbers/d || len(shape) == maxDimensions {
			return nil, nil, fmt.Errorf("the shape (%s) is too large", dims[1])
		}
		n *= d
		shape = append(shape, d)
	}
	data, err = readNumbers[T](b, descr[2], n)
	return data, shape, err
}

func readHeader(b *bufio.Reader) (string, error) {
	var start [len(magic) + 2]byte
	if _, err := io.ReadFull(b, start[:]); err != nil || string(start[:len(magic)]) != magic {
		return "", errors.New("not an npy file")
	}
	length := uint32(0)
	if start[len(magic)] == 1 {
		var short uint16
		if err := binary.Read(b, binary.LittleEndian, &short); err != nil {
			return "", fmt.Errorf("invalid header: %w", err)
		}
		length = uint32(short)
	} else if err := binary.Read(b, binary.LittleEndian, &length); err != nil {
		return "", fmt.Errorf("invalid header: %w", err)
	}
	if length > 1<<16 {
		return "", fmt.Errorf("invalid header size of %d bytes", length)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(b, header); err != nil {
		return "", fmt.Errorf("invalid header: %w", err)
	}
	return string(header), nil
}

// readNumbers reads n numbers in small pieces, so that a corrupt header with a huge n cannot cause a huge allocation.
func readNumbers[T Element](b *bufio.Reader, kind string, n int) ([]T, error) {
	decode, width := decoder(kind)
	if decode == nil {
		return nil, fmt.Errorf("unsupported number type %q, want f4, f8, i1 to i8, u1 to u8 or b1", kind)
	}
	var data []T
	buffer := make([]byte, width)
	for i := range n {
		if _, err := io.ReadFull(b, buffer); err != nil {
			return nil, fmt.Errorf("the array is truncated: it ends after %d of %d numbers", i, n)
		}
		if v, whole := decode(buffer); whole {
			data = append(data, T(v.whole))
		} else {
			data = append(data, T(v.real))
		}
	}
	return data, nil
}

// integerOrFloat holds one decoded number, either as a float or as an integer.
type integerOrFloat struct {
	real  float64
	whole int64
}

func decoder(kind string) (decode func(b []byte) (v integerOrFloat, whole bool), width int) {
	le := binary.LittleEndian
	integer := func(read func(b []byte) int64) func(b []byte) (integerOrFloat, bool) {
		return func(b []byte) (integerOrFloat, bool) { return integerOrFloat{whole: read(b)}, true }
	}
	switch kind {
	case "f4":
		return func(b []byte) (integerOrFloat, bool) {
			return integerOrFloat{real: float64(math.Float32frombits(le.Uint32(b)))},
				false
		}, 4
	case "f8":
		return func(b []byte) (integerOrFloat, bool) {
			return integerOrFloat{real: math.Float64frombits(le.Uint64(b))}, false
		}, 8
	case "i1":
		return integer(func(b []byte) int64 { return int64(int8(b[0])) }), 1
	case "u1", "b1":
		return integer(func(b []byte) int64 { return int64(b[0]) }), 1
	case "i2":
		return integer(func(b []byte) int64 { return int64(int16(le.Uint16(b))) }), 2
	case "u2":
		return integer(func(b []byte) int64 { return int64(le.Uint16(b)) }), 2
	case "i4":
		return integer(func(b []byte) int64 { return int64(int32(le.Uint32(b))) }), 4
	case "u4":
		return integer(func(b []byte) int64 { return int64(le.Uint32(b)) }), 4
	case "i8", "u8":
		return integer(func(b []byte) int64 { return int64(le.Uint64(b)) }), 8
	}
	return nil, 0
}
