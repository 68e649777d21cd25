package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// ErrTruncated is the error for a message body that ends inside a field.
var ErrTruncated = errors.New("the message body ends inside a field")

// writer appends encoded fields to a byte slice, in the order of the calls.
type writer struct{ encoded []byte }

func (w *writer) u8(x uint8)      { w.encoded = append(w.encoded, x) }
func (w *writer) u16(x uint16)    { w.encoded = binary.LittleEndian.AppendUint16(w.encoded, x) }
func (w *writer) u32(x uint32)    { w.encoded = binary.LittleEndian.AppendUint32(w.encoded, x) }
func (w *writer) u64(x uint64)    { w.encoded = binary.LittleEndian.AppendUint64(w.encoded, x) }
func (w *writer) f64(x float64)   { w.u64(math.Float64bits(x)) }
func (w *writer) digest(d Digest) { w.encoded = append(w.encoded, d[:]...) }

func (w *writer) bool(x bool) {
	if x {
		w.u8(1)
	} else {
		w.u8(0)
	}
}

func (w *writer) str(s string) {
	w.u16(uint16(len(s)))
	w.encoded = append(w.encoded, s...)
}

func (w *writer) bytes(p []byte) {
	w.u32(uint32(len(p)))
	w.encoded = append(w.encoded, p...)
}

func (w *writer) f64s(xs []float64) {
	w.u32(uint32(len(xs)))
	for _, x := range xs {
		w.f64(x)
	}
}

func (w *writer) u32s(xs []uint32) {
	w.u32(uint32(len(xs)))
	for _, x := range xs {
		w.u32(x)
	}
}

// reader decodes fields in order. It keeps the first error: later reads return zeros, and finish returns the error.
// Lengths are checked against a limit and the remaining bytes before memory is allocated.
type reader struct {
	unread []byte
	err    error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) failf(format string, args ...any) { r.fail(fmt.Errorf(format, args...)) }

func (r *reader) takeBytes(n int) []byte {
	if r.err != nil {
		return nil
	}
	if len(r.unread) < n {
		r.fail(ErrTruncated)
		return nil
	}
	p := r.unread[:n:n]
	r.unread = r.unread[n:]
	return p
}

func (r *reader) u8() uint8 {
	if p := r.takeBytes(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if p := r.takeBytes(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if p := r.takeBytes(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if p := r.takeBytes(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// f64 decodes a float64. NaN and infinities are errors.
func (r *reader) f64(field string) float64 {
	x := math.Float64frombits(r.u64())
	if !isFinite(x) {
		r.failf("%s is %v: %w", field, x, ErrNotFinite)
		return 0
	}
	return x
}

func (r *reader) digest() (d Digest) {
	copy(d[:], r.takeBytes(len(d)))
	return d
}

func (r *reader) bool(field string) bool {
	x := r.u8()
	if x > 1 {
		r.failf("%s is %d: must be 0 or 1", field, x)
	}
	return x == 1
}

// enum decodes a byte that must be in the range from 1 to last.
func (r *reader) enum(field string, last uint8) uint8 {
	x := r.u8()
	if r.err == nil && (x == 0 || x > last) {
		r.failf("%s is %d: must be between 1 and %d", field, x, last)
	}
	return x
}

// optionalEnum decodes a byte that must be in the range from 0 to last; 0 means that the field is absent.
func (r *reader) optionalEnum(field string, last uint8) uint8 {
	x := r.u8()
	if r.err == nil && x > last {
		r.failf("%s is %d: must be at most %d", field, x, last)
	}
	return x
}

// str decodes a UTF-8 string. The parameter most is the maximum length in bytes.
func (r *reader) str(field string, most int) string {
	n := int(r.u16())
	if n > most {
		r.failf("%s has %d bytes, which exceeds the limit of %d", field, n, most)
		return ""
	}
	p := r.takeBytes(n)
	if !utf8.Valid(p) {
		r.failf("%s is not valid UTF-8", field)
		return ""
	}
	return string(p)
}

// bytes decodes a byte string of at most the length most. It returns a view of the message, not a copy.
func (r *reader) bytes(field string, most int) []byte {
	n := r.u32()
	if uint64(n) > uint64(most) {
		r.failf("%s has %d bytes, which exceeds the limit of %d", field, n, most)
		return nil
	}
	return r.takeBytes(int(n))
}

// listLength decodes the length of a list. It sets an error if the list has more entries than the limit most, or if
// fewer than size bytes per entry remain in the message.
func (r *reader) listLength(field string, most, size int) int {
	n := r.u32()
	if uint64(n) > uint64(most) {
		r.failf("%s has %d entries, which exceeds the limit of %d", field, n, most)
		return 0
	}
	if r.err == nil && int(n)*size > len(r.unread) {
		r.fail(ErrTruncated)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) f64s(field string, most int) []float64 {
	n := r.listLength(field, most, 8)
	if n == 0 {
		return nil
	}
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = r.f64(field)
	}
	return xs
}

func (r *reader) u32s(field string, most int) []uint32 {
	n := r.listLength(field, most, 4)
	if n == 0 {
		return nil
	}
	xs := make([]uint32, n)
	for i := range xs {
		xs[i] = r.u32()
	}
	return xs
}

// finish returns the first error that occurred. Bytes after the last field are an error too, because unknown fields
// must not be ignored silently.
func (r *reader) finish(what string) error {
	if r.err == nil && len(r.unread) > 0 {
		r.failf("%d unexpected bytes after the last field", len(r.unread))
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w", what, r.err)
	}
	return nil
}
