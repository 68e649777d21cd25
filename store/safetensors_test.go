package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Source of testdata/reference.safetensors, made with safetensors 0.8.0 and numpy 2.4.6 on a little-endian machine:
//
//	python3 -c '
//	import numpy as n; from safetensors.numpy import save_file as s
//	s({"w": n.arange(6, dtype="<f4").reshape(2, 3) / 4, "b": n.array([-1.5, 2.0], "<f4"),
//	   "scale": n.array(0.1, "<f8"), "none": n.zeros((0, 3), "<f4"), "é<&>\"": n.array([3.0], "<f8")},
//	  "testdata/reference.safetensors", {"note": "a<b & \"c\""})'
func reference() ([]Tensor, map[string]string) {
	le := binary.LittleEndian
	f32 := func(bits ...uint32) (p []byte) {
		for _, b := range bits {
			p = le.AppendUint32(p, b)
		}
		return p
	}
	return []Tensor{ // in the order of the reference file
		{"scale", "F64", []int{}, le.AppendUint64(nil, 0x3fb999999999999a)},
		{"é<&>\"", "F64", []int{1}, le.AppendUint64(nil, 0x4008000000000000)},
		{"b", "F32", []int{2}, f32(0xbfc00000, 0x40000000)},
		{"none", "F32", []int{0, 3}, []byte{}},
		{"w", "F32", []int{2, 3}, f32(0, 0x3e800000, 0x3f000000, 0x3f400000, 0x3f800000, 0x3fa00000)},
	}, map[string]string{"note": `a<b & "c"`}
}

func TestSafetensorsAgainstReference(t *testing.T) {
	want := mustRead(t, "testdata/reference.safetensors")
	tensors, metadata := reference()
	shuffled := slices.Clone(tensors)
	slices.Reverse(shuffled)
	for _, in := range [][]Tensor{tensors, shuffled} {
		got, err := EncodeSafetensors(in, metadata)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("encoded, %v:\n%q\nreference:\n%q", err, got, want)
		}
	}
	gotTensors, gotMetadata, err := DecodeSafetensors(want)
	if err != nil || !reflect.DeepEqual(gotTensors, tensors) || !maps.Equal(gotMetadata, metadata) {
		t.Errorf("decoded %v, %v, %v", gotTensors, gotMetadata, err)
	}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var tensors []Tensor
		for i := range rnd.IntN(6) {
			x := Tensor{Name: fmt.Sprintf("t\n%d", i), DType: []string{"F32", "F64"}[rnd.IntN(2)], Shape: []int{}}
			size, _ := dtypeSize(x.DType)
			for range rnd.IntN(4) {
				x.Shape = append(x.Shape, rnd.IntN(4))
				size *= x.Shape[len(x.Shape)-1]
			}
			x.Data = make([]byte, size)
			for j := range x.Data {
				x.Data[j] = byte(rnd.Uint32())
			}
			tensors = append(tensors, x)
		}
		metadata := map[string]string{"a": "\u2028", "b": fmt.Sprint(rnd.Uint32())}
		p, err := EncodeSafetensors(tensors, metadata)
		if err != nil {
			t.Fatal(err)
		}
		if header := binary.LittleEndian.Uint64(p); header%8 != 0 {
			t.Errorf("header of %d bytes is not padded to 8", header)
		}
		got, gotMetadata, err := DecodeSafetensors(p)
		if err != nil || !maps.Equal(gotMetadata, metadata) || len(got) != len(tensors) {
			t.Fatalf("decoded %v, %v, %v", got, gotMetadata, err)
		}
		slices.SortFunc(got, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
		for i := range got {
			if !reflect.DeepEqual(got[i], tensors[i]) {
				t.Fatalf("tensor %+v, want %+v", got[i], tensors[i])
			}
		}
	}
}

func TestEncodeSafetensorsRefuses(t *testing.T) {
	ok := Tensor{"w", "F32", []int{1}, make([]byte, 4)}
	for name, tensors := range map[string][]Tensor{
		"no name":      {{"", "F32", nil, make([]byte, 4)}},
		"reserved":     {{metadataKey, "F32", nil, make([]byte, 4)}},
		"not UTF-8":    {{"\xff", "F32", nil, make([]byte, 4)}},
		"twice":        {ok, ok},
		"twice, mixed": {ok, {"w", "F64", []int{1}, make([]byte, 8)}},
		"type":         {{"w", "F16", []int{2}, make([]byte, 4)}},
		"short data":   {{"w", "F32", []int{2}, make([]byte, 4)}},
		"long data":    {{"w", "F32", []int{2}, make([]byte, 12)}},
		"negative":     {{"w", "F32", []int{-1, -1}, make([]byte, 4)}},
		"overflow":     {{"w", "F32", []int{1 << 30, 1 << 30, 4}, make([]byte, 0)}},
		"rank":         {{"w", "F32", make([]int, maxTensorRank+1), nil}},
		"long header":  {{strings.Repeat("n", maxSafetensorsHeader), "F32", nil, make([]byte, 4)}},
	} {
		if _, err := EncodeSafetensors(tensors, nil); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	if _, err := EncodeSafetensors(nil, map[string]string{"k": "\xff"}); err == nil {
		t.Error("metadata that is not UTF-8: encoded")
	}
}

// safeFile returns a safetensors file with this header and n zero bytes of data.
func safeFile(header string, n int) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(p, header...), make([]byte, n)...)
}

func TestDecodeSafetensorsRefuses(t *testing.T) {
	const w = `"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`
	if _, _, err := DecodeSafetensors(safeFile("{"+w+"}  \n", 4)); err != nil {
		t.Fatalf("the file that the others are made from: %v", err)
	}
	for _, tc := range []struct {
		header string
		data   int
		want   string
	}{
		{``, 0, "not a JSON object"},
		{` {` + w + `}`, 4, "not a JSON object"},
		{`[]`, 0, "not a JSON object"},
		{`{` + w, 4, "EOF"},
		{`{` + w + `,}`, 4, "invalid character"},
		{`{` + w + `}x`, 4, "unexpected text after"},
		{`{` + w + `,` + w + `}`, 4, "occurs twice"},
		{"{\"\xff\":1}", 0, "UTF-8"},
		{`{"w":7}`, 0, "not a JSON object"},
		{`{"w":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}`, 4, "use F32 or F64"},
		{`{"w":{"dtype":null,"shape":[1],"data_offsets":[0,4]}}`, 4, "use F32 or F64"},
		{`{"w":{"dtype":"F32","shape":null,"data_offsets":[0,4]}}`, 4, "null"},
		{`{"w":{"dtype":"F32","shape":[null],"data_offsets":[0,0]}}`, 0, "null"},
		{`{"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`, 4, "cannot unmarshal"},
		{`{"w":{"dtype":"F32","shape":[1e30],"data_offsets":[0,4]}}`, 4, "cannot unmarshal"},
		{`{"w":{"dtype":"F32","data_offsets":[0,4]}}`, 4, "the tensor must have dtype, shape"},
		{`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`, 4, "two elements"},
		{`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"dtype":"F64"}}`, 4, "occurs twice"},
		{`{"w":{"DType":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, "unknown"},
		{`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4, "requires more than the 4 bytes of the tensor"},
		{`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, 8, "requires 4 bytes, but the tensor has 8"},
		{`{"w":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}}`, 4, "dimension of the shape is 4294967296"},
		{`{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4, "dimension of the shape is -1"},
		{`{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, "leave a gap"},
		{`{"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, 4, "overlap"},
		{`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}}`, 4, "overlap"},
		{`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4, "exceed the 4 bytes"},
		{`{` + w + `,"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, "overlap"},
		{`{` + w + `}`, 5, "belong to no tensor"},
		{`{"__metadata__":null}`, 0, "not a JSON object"},
		{`{"__metadata__":{"k":1}}`, 0, "is not a string"},
		{`{"__metadata__":{"k":null}}`, 0, "is not a string"},
		{`{"__metadata__":{"k":"1","k":"2"}}`, 0, "occurs twice"},
	} {
		_, _, err := DecodeSafetensors(safeFile(tc.header, tc.data))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("header %s with %d bytes: error %v, want %q", tc.header, tc.data, err, tc.want)
		}
	}
	for _, p := range [][]byte{nil, make([]byte, 7), binary.LittleEndian.AppendUint64(nil, 1),
		bytes.Repeat([]byte{255}, 20)} {
		if _, _, err := DecodeSafetensors(p); err == nil || !strings.Contains(err.Error(), "not a safetensors file") {
			t.Errorf("%x: error %v", p, err)
		}
	}
}

// FuzzDecodeSafetensors checks that decoded tensors cover the data exactly, and that encoding the tensors and decoding
// them again yields the same tensors.
func FuzzDecodeSafetensors(f *testing.F) {
	tensors, metadata := reference()
	p, err := EncodeSafetensors(tensors, metadata)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Add(safeFile(`{"__metadata__":{}}`, 0))
	f.Add(safeFile(`{"w":{"dtype":"F32","shape":[0,9999999999],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, p []byte) {
		tensors, metadata, err := DecodeSafetensors(p)
		if err != nil {
			return
		}
		covered := 0
		for _, x := range tensors {
			covered += len(x.Data)
		}
		if want := len(p) - 8 - int(binary.LittleEndian.Uint64(p)); covered != want {
			t.Fatalf("tensors cover %d of %d bytes", covered, want)
		}
		again, err := EncodeSafetensors(tensors, metadata)
		if err != nil {
			if strings.Contains(err.Error(), "tensor name") || strings.Contains(err.Error(), "header has") {
				return // decoding accepts an empty name, and escapes may exceed the header limit when encoded
			}
			t.Fatal(err)
		}
		got, gotMetadata, err := DecodeSafetensors(again)
		if err != nil || !maps.Equal(gotMetadata, metadata) || len(got) != len(tensors) {
			t.Fatalf("encoded again: %v, %v, %v", got, gotMetadata, err)
		}
		twice, err := EncodeSafetensors(got, gotMetadata)
		if err != nil || !bytes.Equal(twice, again) {
			t.Fatalf("encoding is not stable: %v", err)
		}
	})
}
