package export

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// encodeCHeader returns a C99 header file with the model's constants and a predict function that allocates only stack
// memory.
func (n *network) encodeCHeader() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	outputs := max(n.classCount, 1)
	p("/* Model %s of the task %s: %s, %s.", n.DisplayName(), escapeCComment(n.TaskName), n.Architecture.Risk,
		n.describeLayers())
	p(" * Written by \"coordinator model export --format c\"; hash %s.", n.ParameterDigest)
	p(" * %d bytes of constants, and %d bytes of the stack. It is plain C99 and uses functions of <math.h>. */",
		n.constantsSize(), 4*(len(n.Features)+2*n.maxLayerUnits()+n.layers[len(n.layers)-1].out))
	p("#ifndef FEDMESH_MODEL_H\n#define FEDMESH_MODEL_H\n\n#include <math.h>\n")
	p("#define FEDMESH_MODEL_INPUTS %d\n#define FEDMESH_MODEL_OUTPUTS %d\n", len(n.Features), outputs)
	p("/* The inputs, in their order: */")
	for i, name := range n.Features {
		p("/* %4d: %s */", i, escapeCComment(name))
	}
	b.WriteByte('\n')
	if n.isStandardized() {
		inputs := len(n.Features)
		writeCArray(&b, "double", "mean", n.Standardization.Mean[:inputs], 17)
		writeCArray(&b, "double", "scale", n.Standardization.Scale[:inputs], 17)
	}
	for i, f := range n.filters {
		writeLayerWeights(&b, i, f.layer)
	}
	for i, l := range n.layers {
		writeLayerWeights(&b, len(n.filters)+i, l)
	}
	n.writeFilterFunction(p)
	n.writeLayerFunction(p)
	n.writePredictFunction(p)
	p("#endif")
	return b.Bytes()
}

// describeLayers returns a description of the network's layers for the header's comment.
func (n *network) describeLayers() string {
	text := strconv.Itoa(n.Architecture.Inputs)
	for _, f := range n.filters {
		text += fmt.Sprintf("-%dx%d", f.out, f.outputSteps)
	}
	for _, l := range n.layers {
		text += fmt.Sprintf("-%d", l.out)
	}
	if len(n.filters)+len(n.layers) > 1 {
		text += ", " + string(n.hiddenActivation())
	}
	return text
}

// constantsSize returns the total size in bytes of the constants in the C header.
func (n *network) constantsSize() int {
	total := len(n.ParameterBytes)
	if n.isStandardized() {
		total += 16 * len(n.Features)
	}
	return total
}

// escapeCComment replaces characters that would end a C comment.
func escapeCComment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.NewReplacer("*/", "* /", "/*", "/ *", "??", "? ?").Replace(text))
}

// writeLayerWeights writes the weights and biases of a layer as C constants.
func writeLayerWeights(b *bytes.Buffer, i int, l layer) {
	writeCArray(b, "float", fmt.Sprint("w", i), l.w, 9)
	if l.b != nil {
		writeCArray(b, "float", fmt.Sprint("b", i), l.b, 9)
	}
}

// writeCArray writes values as a constant C array.
func writeCArray[T float32 | float64](b *bytes.Buffer, kind, name string, values []T, digits int) {
	fmt.Fprintf(b, "static const %s fedmesh_model_%s[%d] = {", kind, name, len(values))
	for i, v := range values {
		if i%6 == 0 {
			b.WriteString("\n ")
		}
		fmt.Fprintf(b, " %s,", formatCNumber(float64(v), digits, kind == "float"))
	}
	b.WriteString("\n};\n")
}

// formatCNumber formats a number as a C literal with the given number of digits.
func formatCNumber(v float64, digits int, single bool) string {
	text := strconv.FormatFloat(v, 'g', digits, 64)
	if v == math.Trunc(v) && !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	if single {
		text += "f"
	}
	return text
}

// writeFilterFunction writes the C function that computes a filter layer with max pooling. It writes nothing if the
// model has no filter layers.
func (n *network) writeFilterFunction(p func(string, ...any)) {
	if len(n.filters) == 0 {
		return
	}
	p(`
static void fedmesh_model_filter(const float *x, int channels, int before, const float *w, int filters, int kernel,
                                 const float *b, int pool, float *y)
{
  int steps = (before - kernel + 1) / pool;
  for (int f = 0; f < filters; f++) {
    for (int t = 0; t < steps * pool; t++) {
      float sum = b ? b[f] : 0.0f;
      for (int c = 0; c < channels; c++)
        for (int k = 0; k < kernel; k++)
          sum += w[(f * channels + c) * kernel + k] * x[c * before + t + k];
      float *most = &y[f * steps + t / pool];
      if (t %% pool == 0 || sum > *most || sum != sum)
        *most = sum;
    }
  }
}`)
}

// writeLayerFunction writes the C function that computes the weighted sums of a layer.
func (n *network) writeLayerFunction(p func(string, ...any)) {
	p(`
static void fedmesh_model_layer(const float *x, int in, int out, const float *w, const float *b, float *y)
{
  for (int i = 0; i < out; i++) {
    float sum = 0.0f;
    for (int j = 0; j < in; j++)
      sum += w[i * in + j] * x[j];
    y[i] = b ? sum + b[i] : sum;
  }
}
`)
}

// writePredictFunction writes the public C function that computes a prediction.
func (n *network) writePredictFunction(p func(string, ...any)) {
	mean, scale := n.targetScaling()
	says := "For a regression, out[0] is " + escapeCComment(n.Target) + ". It is also the return value."
	switch {
	case n.isAutoencoder():
		says = "For an autoencoder, out[0] is the reconstruction error of the row, in standard deviations. " +
			"A high value indicates an anomaly. It is also the return value."
	case n.classCount > 0:
		says = "For a classification, out contains the probability of each class. " +
			"The most probable class is returned, or the first of several equal ones."
	}
	p("/* Predicts from a row in the units of the data. %s */", says)
	p("static float fedmesh_model_predict(const float row[FEDMESH_MODEL_INPUTS], float out[FEDMESH_MODEL_OUTPUTS])\n{")
	p("  float x[FEDMESH_MODEL_INPUTS], z[%d];", n.layers[len(n.layers)-1].out)
	if len(n.filters)+len(n.layers) > 1 {
		p("  float h[2][%d];", n.maxLayerUnits())
	}
	p("  for (int i = 0; i < FEDMESH_MODEL_INPUTS; i++) {")
	switch clip := formatCNumber(n.Standardization.Clip, 17, false); {
	case !n.isStandardized():
		p("    x[i] = row[i];")
	case n.Standardization.Clip > 0:
		p("    double v = ((double)row[i] - fedmesh_model_mean[i]) / fedmesh_model_scale[i];")
		p("    x[i] = (float)(v < -%s ? -%s : v > %s ? %s : v);", clip, clip, clip, clip)
	default:
		p("    x[i] = (float)(((double)row[i] - fedmesh_model_mean[i]) / fedmesh_model_scale[i]);")
	}
	p("  }")
	n.writeLayerCalls(p)
	switch {
	case n.isAutoencoder():
		p("  float sum = 0.0f;\n  for (int i = 0; i < FEDMESH_MODEL_INPUTS; i++)")
		p("    sum += (z[i] - x[i]) * (z[i] - x[i]);")
		p("  out[0] = sqrtf(sum / FEDMESH_MODEL_INPUTS);\n  return out[0];\n}\n")
		return
	case n.classCount == 0:
		p("  out[0] = (float)((double)z[0] * %s + %s);\n  return out[0];\n}\n", formatCNumber(scale, 17, false),
			formatCNumber(mean, 17, false))
		return
	case n.isLogistic():
		p("  out[1] = 1.0f / (1.0f + expf(-z[0]));\n  out[0] = 1.0f / (1.0f + expf(z[0]));")
	default:
		p(`  float most = z[0], sum = 0.0f;
  for (int i = 1; i < FEDMESH_MODEL_OUTPUTS; i++)
    most = z[i] > most ? z[i] : most;
  for (int i = 0; i < FEDMESH_MODEL_OUTPUTS; i++)
    sum += out[i] = expf(z[i] - most);
  for (int i = 0; i < FEDMESH_MODEL_OUTPUTS; i++)
    out[i] /= sum;`)
	}
	p(`  int best = 0;
  for (int i = 1; i < FEDMESH_MODEL_OUTPUTS; i++)
    best = out[i] > out[best] ? i : best;
  return (float)best;
}
`)
}

// writeLayerCalls writes the C code that computes the network's outputs z from the features x.
func (n *network) writeLayerCalls(p func(string, ...any)) {
	from, does := "x", cExpressionByActivation[n.hiddenActivation()]
	activate := func(name string, units int) {
		if does != "" {
			p("  for (int i = 0; i < %d; i++)\n    %s[i] = %s;", units, name, strings.ReplaceAll(does, "X", name+"[i]"))
		}
	}
	bias := func(i int, l layer) string {
		if l.b == nil {
			return "0"
		}
		return fmt.Sprint("fedmesh_model_b", i)
	}
	for i, f := range n.filters { // the activation is monotonic, so it can follow the max pooling
		to := fmt.Sprintf("h[%d]", i%2)
		p("  fedmesh_model_filter(%s, %d, %d, fedmesh_model_w%d, %d, %d, %s, %d, %s);", from, f.channels, f.inputSteps,
			i,
			f.out, f.kernel, bias(i, f.layer), f.pool, to)
		activate(to, f.out*f.outputSteps)
		from = to
	}
	for j, l := range n.layers {
		i, to := len(n.filters)+j, "z"
		if j < len(n.layers)-1 {
			to = fmt.Sprintf("h[%d]", i%2)
		}
		p("  fedmesh_model_layer(%s, %d, %d, fedmesh_model_w%d, %s, %s);", from, l.in, l.out, i, bias(i, l), to)
		if to != "z" {
			activate(to, l.out)
		}
		from = to
	}
}

// cExpressionByActivation maps each activation function to a C expression of the variable X.
var cExpressionByActivation = map[spec.Activation]string{
	spec.ActivationTanh: "tanhf(X)", spec.ActivationReLU: "X > 0.0f ? X : 0.0f",
}
