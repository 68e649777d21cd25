package export

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// The numbers of ONNX's fields and types (onnx.proto3), as far as they are used here.
const (
	irVersion    = 8
	opsetVersion = 13

	onnxFloat, onnxInt64, onnxDouble = 1, 7, 11
	attributeInt, attributeInts      = 2, 7
)

// message is a message of protobuf as it grows.
type message []byte

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *message) text(field protowire.Number, text string) { m.bytes(field, []byte(text)) }

func (m *message) number(field protowire.Number, v int) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(v))
}

// graph is a graph of ONNX as it grows: each node takes the last one's output.
type graph struct {
	nodes, constants message
	last             string
	count            int
}

// node adds an operation on inputs, whose output becomes the last.
func (g *graph) node(op string, attributes []message, inputs ...string) string {
	g.count++
	g.last = fmt.Sprint("t", g.count)
	g.named(op, attributes, g.last, inputs...)
	return g.last
}

// named adds an operation with an output of that name.
func (g *graph) named(op string, attributes []message, output string, inputs ...string) {
	var n message
	for _, name := range inputs {
		n.text(1, name)
	}
	n.text(2, output)
	n.text(4, op)
	for _, a := range attributes {
		n.bytes(5, a)
	}
	g.nodes.bytes(1, n)
	g.last = output
}

// constant adds a tensor.
func (g *graph) constant(name string, kind int, shape []int, raw []byte) string {
	var t message
	for _, n := range shape {
		t.number(1, n)
	}
	t.number(2, kind)
	t.text(8, name)
	t.bytes(9, raw)
	g.constants.bytes(5, t)
	return name
}

func (g *graph) floats(name string, v []float32, shape ...int) string {
	return g.constant(name, onnxFloat, shape, wire.AppendVector(nil, v))
}

func (g *graph) doubles(name string, v []float64, shape ...int) string {
	return g.constant(name, onnxDouble, shape, wire.AppendVector(nil, v))
}

// integer is an attribute.
func integer(name string, v int) message {
	var a message
	a.text(1, name)
	a.number(3, v)
	a.number(20, attributeInt)
	return a
}

// integers is an attribute of a list.
func integers(name string, all ...int) message {
	var a message
	a.text(1, name)
	for _, v := range all {
		a.number(8, v)
	}
	a.number(20, attributeInts)
	return a
}

// cast makes the last output another type.
func (g *graph) cast(to int) { g.node("Cast", []message{integer("to", to)}, g.last) }

// onnx returns the model as ONNX: input "row" [N, features]; outputs "value" [N, 1] of a regression or an autoencoder,
// or "probabilities" [N, classes] and "class" [N].
func (n *network) onnx() []byte {
	g := &graph{last: "row"}
	n.standardize(g)
	row := g.last
	n.slide(g)
	for i, l := range n.layers {
		name := fmt.Sprint("layer", len(n.filters)+i)
		inputs := []string{g.last, g.floats(name+".weight", l.w, l.out, l.in)}
		if l.b != nil {
			inputs = append(inputs, g.floats(name+".bias", l.b, l.out))
		}
		g.node("Gemm", []message{integer("transB", 1)}, inputs...)
		if op := operators[n.activated()]; i < len(n.layers)-1 && op != "" {
			g.node(op, nil, g.last)
		}
	}
	var outputs message
	switch {
	case n.autoencodes():
		miss := g.node("Sub", nil, g.last, row)
		g.node("ReduceMean", []message{integers("axes", 1)}, g.node("Mul", nil, miss, miss))
		g.named("Sqrt", nil, "value", g.last)
		outputs.bytes(12, valueInfo("value", onnxFloat, 1))
	case n.classes == 0:
		mean, scale := n.target()
		g.cast(onnxDouble)
		g.node("Mul", nil, g.last, g.doubles("target.scale", []float64{scale}, 1))
		g.node("Add", nil, g.last, g.doubles("target.mean", []float64{mean}, 1))
		g.named("Cast", []message{integer("to", onnxFloat)}, "value", g.last)
		outputs.bytes(12, valueInfo("value", onnxFloat, 1))
	default:
		n.probabilities(g)
		g.named("ArgMax", []message{integer("axis", 1), integer("keepdims", 0)}, "class", "probabilities")
		outputs.bytes(12, valueInfo("probabilities", onnxFloat, n.classes))
		outputs.bytes(12, valueInfo("class", onnxInt64))
	}
	return n.model(g, outputs)
}

// slide brings rows through the filters, to [N, filters·steps].
func (n *network) slide(g *graph) {
	if len(n.filters) == 0 {
		return
	}
	first := n.filters[0]
	shape := binary.LittleEndian.AppendUint64(nil, math.MaxUint64) // −1: as many as there are
	for _, v := range []int{first.channels, first.before} {
		shape = binary.LittleEndian.AppendUint64(shape, uint64(v))
	}
	g.node("Reshape", nil, g.last, g.constant("channels", onnxInt64, []int{3}, shape))
	for i, f := range n.filters {
		name := fmt.Sprint("layer", i)
		inputs := []string{g.last, g.floats(name+".weight", f.w, f.out, f.channels, f.kernel)}
		if f.b != nil {
			inputs = append(inputs, g.floats(name+".bias", f.b, f.out))
		}
		g.node("Conv", []message{integers("kernel_shape", f.kernel)}, inputs...)
		if op := operators[n.activated()]; op != "" {
			g.node(op, nil, g.last)
		}
		if f.pool > 1 {
			g.node("MaxPool", []message{integers("kernel_shape", f.pool), integers("strides", f.pool)}, g.last)
		}
	}
	g.node("Flatten", []message{integer("axis", 1)}, g.last)
}

// standardize brings the row into the units inside, with the rounding of training.
func (n *network) standardize(g *graph) {
	st, inputs := &n.Standardization, len(n.Features)
	if !n.standardized() {
		return
	}
	g.cast(onnxDouble)
	g.node("Sub", nil, g.last, g.doubles("mean", st.Mean[:inputs], inputs))
	g.node("Div", nil, g.last, g.doubles("scale", st.Scale[:inputs], inputs))
	if st.Clip > 0 {
		g.node("Clip", nil, g.last, g.doubles("clip.least", []float64{-st.Clip}), g.doubles("clip.most",
			[]float64{st.Clip}))
	}
	g.cast(onnxFloat)
}

// probabilities makes them of the last layer's outputs.
func (n *network) probabilities(g *graph) {
	if !n.logistic() {
		g.named("Softmax", []message{integer("axis", 1)}, "probabilities", g.last)
		return
	}
	z := g.last
	one := g.node("Sigmoid", nil, z)
	zero := g.node("Sigmoid", nil, g.node("Neg", nil, z))
	g.named("Concat", []message{integer("axis", 1)}, "probabilities", zero, one)
}

// valueInfo describes an input or output [N, …].
func valueInfo(name string, kind int, shape ...int) message {
	var dims, first message
	first.text(2, "N")
	dims.bytes(1, first)
	for _, n := range shape {
		var d message
		d.number(1, n)
		dims.bytes(1, d)
	}
	var tensor, of, v message
	tensor.number(1, kind)
	tensor.bytes(2, dims)
	of.bytes(1, tensor)
	v.text(1, name)
	v.bytes(2, of)
	return v
}

// model is the file.
func (n *network) model(g *graph, outputs message) []byte {
	body := g.nodes
	body.text(2, n.Task)
	body = append(body, g.constants...)
	body.bytes(11, valueInfo("row", onnxFloat, len(n.Features)))
	body = append(body, outputs...)
	var opset, m message
	opset.number(2, opsetVersion)
	m.number(1, irVersion)
	m.text(2, "fedmesh")
	m.bytes(7, body)
	m.bytes(8, opset)
	about := [][2]string{{"task", n.Task}, {"model", n.Name()}, {"hash", n.Hash.String()},
		{"target", n.Target}}
	for i, f := range n.Features {
		about = append(about, [2]string{fmt.Sprint("feature", i), f})
	}
	for _, pair := range about {
		var entry message
		entry.text(1, pair[0])
		entry.text(2, pair[1])
		m.bytes(14, entry)
	}
	return m
}

// operators are ONNX's for activations.
var operators = map[spec.Activation]string{spec.ActivationTanh: "Tanh", spec.ActivationReLU: "Relu"}
