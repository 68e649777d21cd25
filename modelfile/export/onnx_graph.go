package export

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Field numbers and types of ONNX (onnx.proto3) that are used in this file.
const (
	irVersion    = 8
	opsetVersion = 13

	onnxFloat, onnxInt64, onnxDouble = 1, 7, 11
	attributeInt, attributeInts      = 2, 7
)

// protoMessage is a protobuf message under construction.
type protoMessage []byte

func (m *protoMessage) appendBytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *protoMessage) appendText(field protowire.Number, text string) {
	m.appendBytes(field, []byte(text))
}

func (m *protoMessage) appendNumber(field protowire.Number, v int) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(v))
}

// onnxGraph is an ONNX graph that is being built. Each new node processes the output of the previous node.
type onnxGraph struct {
	nodes, constants protoMessage
	lastOutputName   string
	nodeCount        int
}

// addNode adds an operation to the graph and returns the name of its output. This output becomes the last output.
func (g *onnxGraph) addNode(op string, attributes []protoMessage, inputs ...string) string {
	g.nodeCount++
	g.lastOutputName = fmt.Sprint("t", g.nodeCount)
	g.addNamedNode(op, attributes, g.lastOutputName, inputs...)
	return g.lastOutputName
}

// addNamedNode adds an operation whose output has the given name.
func (g *onnxGraph) addNamedNode(op string, attributes []protoMessage, output string, inputs ...string) {
	var n protoMessage
	for _, name := range inputs {
		n.appendText(1, name)
	}
	n.appendText(2, output)
	n.appendText(4, op)
	for _, a := range attributes {
		n.appendBytes(5, a)
	}
	g.nodes.appendBytes(1, n)
	g.lastOutputName = output
}

// addConstant adds a constant tensor and returns its name.
func (g *onnxGraph) addConstant(name string, kind int, shape []int, raw []byte) string {
	var t protoMessage
	for _, n := range shape {
		t.appendNumber(1, n)
	}
	t.appendNumber(2, kind)
	t.appendText(8, name)
	t.appendBytes(9, raw)
	g.constants.appendBytes(5, t)
	return name
}

func (g *onnxGraph) addFloatConstant(name string, v []float32, shape ...int) string {
	return g.addConstant(name, onnxFloat, shape, wire.AppendVector(nil, v))
}

func (g *onnxGraph) addDoubleConstant(name string, v []float64, shape ...int) string {
	return g.addConstant(name, onnxDouble, shape, wire.AppendVector(nil, v))
}

// intAttribute returns an encoded ONNX attribute with an integer value.
func intAttribute(name string, v int) protoMessage {
	var a protoMessage
	a.appendText(1, name)
	a.appendNumber(3, v)
	a.appendNumber(20, attributeInt)
	return a
}

// intsAttribute returns an encoded ONNX attribute with a list of integers.
func intsAttribute(name string, all ...int) protoMessage {
	var a protoMessage
	a.appendText(1, name)
	for _, v := range all {
		a.appendNumber(8, v)
	}
	a.appendNumber(20, attributeInts)
	return a
}

// addCastNode adds an operation that converts the last output to another element type.
func (g *onnxGraph) addCastNode(to int) {
	g.addNode("Cast", []protoMessage{intAttribute("to", to)}, g.lastOutputName)
}

// encodeONNX returns the model as ONNX. The input is "row" [N, features]. The outputs are "value" [N, 1] for a
// regression or an autoencoder, or "probabilities" [N, classes] and "class" [N].
func (n *network) encodeONNX() []byte {
	g := &onnxGraph{lastOutputName: "row"}
	n.addStandardizeNodes(g)
	row := g.lastOutputName
	n.addFilterNodes(g)
	for i, l := range n.layers {
		name := fmt.Sprint("layer", len(n.filters)+i)
		inputs := []string{g.lastOutputName, g.addFloatConstant(name+".weight", l.w, l.out, l.in)}
		if l.b != nil {
			inputs = append(inputs, g.addFloatConstant(name+".bias", l.b, l.out))
		}
		g.addNode("Gemm", []protoMessage{intAttribute("transB", 1)}, inputs...)
		if op := onnxOperatorByActivation[n.hiddenActivation()]; i < len(n.layers)-1 && op != "" {
			g.addNode(op, nil, g.lastOutputName)
		}
	}
	var outputs protoMessage
	switch {
	case n.isAutoencoder():
		miss := g.addNode("Sub", nil, g.lastOutputName, row)
		g.addNode("ReduceMean", []protoMessage{intsAttribute("axes", 1)}, g.addNode("Mul", nil, miss, miss))
		g.addNamedNode("Sqrt", nil, "value", g.lastOutputName)
		outputs.appendBytes(12, encodeValueInfo("value", onnxFloat, 1))
	case n.classCount == 0:
		mean, scale := n.targetScaling()
		g.addCastNode(onnxDouble)
		g.addNode("Mul", nil, g.lastOutputName, g.addDoubleConstant("target.scale", []float64{scale}, 1))
		g.addNode("Add", nil, g.lastOutputName, g.addDoubleConstant("target.mean", []float64{mean}, 1))
		g.addNamedNode("Cast", []protoMessage{intAttribute("to", onnxFloat)}, "value", g.lastOutputName)
		outputs.appendBytes(12, encodeValueInfo("value", onnxFloat, 1))
	default:
		n.addProbabilityNodes(g)
		g.addNamedNode("ArgMax", []protoMessage{intAttribute("axis", 1), intAttribute("keepdims", 0)}, "class",
			"probabilities")
		outputs.appendBytes(12, encodeValueInfo("probabilities", onnxFloat, n.classCount))
		outputs.appendBytes(12, encodeValueInfo("class", onnxInt64))
	}
	return n.encodeONNXModel(g, outputs)
}

// addFilterNodes adds the filter layers. Their output has the shape [N, filters·steps].
func (n *network) addFilterNodes(g *onnxGraph) {
	if len(n.filters) == 0 {
		return
	}
	first := n.filters[0]
	shape := binary.LittleEndian.AppendUint64(nil, math.MaxUint64) // −1 means that ONNX infers this dimension
	for _, v := range []int{first.channels, first.inputSteps} {
		shape = binary.LittleEndian.AppendUint64(shape, uint64(v))
	}
	g.addNode("Reshape", nil, g.lastOutputName, g.addConstant("channels", onnxInt64, []int{3}, shape))
	for i, f := range n.filters {
		name := fmt.Sprint("layer", i)
		inputs := []string{g.lastOutputName, g.addFloatConstant(name+".weight", f.w, f.out, f.channels, f.kernel)}
		if f.b != nil {
			inputs = append(inputs, g.addFloatConstant(name+".bias", f.b, f.out))
		}
		g.addNode("Conv", []protoMessage{intsAttribute("kernel_shape", f.kernel)}, inputs...)
		if op := onnxOperatorByActivation[n.hiddenActivation()]; op != "" {
			g.addNode(op, nil, g.lastOutputName)
		}
		if f.pool > 1 {
			g.addNode("MaxPool", []protoMessage{intsAttribute("kernel_shape", f.pool), intsAttribute("strides",
				f.pool)},
				g.lastOutputName)
		}
	}
	g.addNode("Flatten", []protoMessage{intAttribute("axis", 1)}, g.lastOutputName)
}

// addStandardizeNodes adds the standardisation of the row, with the same rounding as in training.
func (n *network) addStandardizeNodes(g *onnxGraph) {
	st, inputs := &n.Standardization, len(n.Features)
	if !n.isStandardized() {
		return
	}
	g.addCastNode(onnxDouble)
	g.addNode("Sub", nil, g.lastOutputName, g.addDoubleConstant("mean", st.Mean[:inputs], inputs))
	g.addNode("Div", nil, g.lastOutputName, g.addDoubleConstant("scale", st.Scale[:inputs], inputs))
	if st.Clip > 0 {
		g.addNode("Clip", nil, g.lastOutputName, g.addDoubleConstant("clip.least", []float64{-st.Clip}),
			g.addDoubleConstant("clip.most",
				[]float64{st.Clip}))
	}
	g.addCastNode(onnxFloat)
}

// addProbabilityNodes adds the conversion of the last layer's outputs to class probabilities.
func (n *network) addProbabilityNodes(g *onnxGraph) {
	if !n.isLogistic() {
		g.addNamedNode("Softmax", []protoMessage{intAttribute("axis", 1)}, "probabilities", g.lastOutputName)
		return
	}
	z := g.lastOutputName
	one := g.addNode("Sigmoid", nil, z)
	zero := g.addNode("Sigmoid", nil, g.addNode("Neg", nil, z))
	g.addNamedNode("Concat", []protoMessage{intAttribute("axis", 1)}, "probabilities", zero, one)
}

// encodeValueInfo encodes the description of a graph input or output with shape [N, …].
func encodeValueInfo(name string, kind int, shape ...int) protoMessage {
	var dims, first protoMessage
	first.appendText(2, "N")
	dims.appendBytes(1, first)
	for _, n := range shape {
		var d protoMessage
		d.appendNumber(1, n)
		dims.appendBytes(1, d)
	}
	var tensor, of, v protoMessage
	tensor.appendNumber(1, kind)
	tensor.appendBytes(2, dims)
	of.appendBytes(1, tensor)
	v.appendText(1, name)
	v.appendBytes(2, of)
	return v
}

// encodeONNXModel encodes the complete ONNX file with the graph g.
func (n *network) encodeONNXModel(g *onnxGraph, outputs protoMessage) []byte {
	body := g.nodes
	body.appendText(2, n.TaskName)
	body = append(body, g.constants...)
	body.appendBytes(11, encodeValueInfo("row", onnxFloat, len(n.Features)))
	body = append(body, outputs...)
	var opset, m protoMessage
	opset.appendNumber(2, opsetVersion)
	m.appendNumber(1, irVersion)
	m.appendText(2, "fedmesh")
	m.appendBytes(7, body)
	m.appendBytes(8, opset)
	about := [][2]string{{"task", n.TaskName}, {"model", n.DisplayName()}, {"hash", n.ParameterDigest.String()},
		{"target", n.Target}}
	for i, f := range n.Features {
		about = append(about, [2]string{fmt.Sprint("feature", i), f})
	}
	for _, pair := range about {
		var entry protoMessage
		entry.appendText(1, pair[0])
		entry.appendText(2, pair[1])
		m.appendBytes(14, entry)
	}
	return m
}

// onnxOperatorByActivation maps each activation function to an ONNX operator.
var onnxOperatorByActivation = map[spec.Activation]string{spec.ActivationTanh: "Tanh", spec.ActivationReLU: "Relu"}
