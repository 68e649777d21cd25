package wire_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

func evaluationOfClasses() wire.Evaluation {
	return wire.Evaluation{Run: 7, ModelVersion: 2, Rows: 31, RiskSum: 15.5, CorrectRows: 28,
		ConfusionMatrix: []uint32{20,
			1, 2, 8}}
}

func evaluationOfNumbers() wire.Evaluation {
	return wire.Evaluation{Run: 7, ModelVersion: 2, Rows: 31, RiskSum: 15.5, SSE: 31, TargetSquareSum: 62,
		ResidualHistogram: goldenBins()}
}

func evaluationOfProgram() wire.Evaluation {
	return wire.Evaluation{Run: 7, ModelVersion: 2, Rows: 31, RiskSum: 15.5,
		ExternalMetrics: []wire.ExternalMetric{{Name: "accuracy", Sum: 28}, {Name: "top_5", Sum: 30.5}}}
}

// TestEvaluationAddsUp checks that an evaluation is rejected if its values are impossible for the given number of rows.
func TestEvaluationAddsUp(t *testing.T) {
	classes, numbers, program := evaluationOfClasses, evaluationOfNumbers, evaluationOfProgram
	for _, c := range []struct {
		name   string
		of     func() wire.Evaluation
		change func(m *wire.Evaluation)
		want   string
	}{
		{"classes", classes, func(*wire.Evaluation) {}, ""},
		{"numbers", numbers, func(*wire.Evaluation) {}, ""},
		{"no cells", classes, func(m *wire.Evaluation) { m.ConfusionMatrix = nil }, ""},
		{"no rows", classes, func(m *wire.Evaluation) { *m = wire.Evaluation{Run: 7, ModelVersion: 2} }, ""},
		{"more hits than rows", classes, func(m *wire.Evaluation) { m.CorrectRows, m.ConfusionMatrix = 32, nil },
			"out of range for 31 rows"},
		{"a negative square", numbers, func(m *wire.Evaluation) { m.SSE = -1 }, "out of range for 31 rows"},
		{"negative squares", numbers, func(m *wire.Evaluation) { m.TargetSquareSum = -1 }, "out of range for 31 rows"},
		{"a risk out of bounds", classes, func(m *wire.Evaluation) { m.RiskSum = -1e102 }, "out of range for 31 rows"},
		{"targets out of bounds", numbers, func(m *wire.Evaluation) { m.TargetSum = 1e102 },
			"out of range for 31 rows"},
		{"a residual too many", numbers, func(m *wire.Evaluation) { m.ResidualHistogram[5]++ },
			"32 residuals in 64 bins"},
		{"a bin too few", numbers, func(m *wire.Evaluation) { m.ResidualHistogram = []uint32{31} },
			"31 residuals in 1 bins"},
		{"a bin too many", numbers, func(m *wire.Evaluation) { m.ResidualHistogram = append(m.ResidualHistogram, 0) },
			"exceeds the limit of 64"},
		{"a row too few", classes, func(m *wire.Evaluation) { m.ConfusionMatrix[1]-- }, "30 rows in 4 cells"},
		{"another number of hits", classes, func(m *wire.Evaluation) { m.CorrectRows-- }, "with 27 correct"},
		{"no square", classes, func(m *wire.Evaluation) { m.ConfusionMatrix = append(m.ConfusionMatrix, 0) },
			"in 5 cells"},
		{"a program's", program, func(*wire.Evaluation) {}, ""},
		{"a program's risk alone", program, func(m *wire.Evaluation) { m.ExternalMetrics = []wire.ExternalMetric{} },
			""},
		{"a program's of no rows", program, func(m *wire.Evaluation) { m.Rows = 0 }, "require an external model"},
		{"a program's bins", program, func(m *wire.Evaluation) { m.ResidualHistogram = goldenBins() },
			"require an external model"},
		{"a program's hits", program, func(m *wire.Evaluation) { m.CorrectRows = 1 }, "require an external model"},
		{"a program's cells", classes, func(m *wire.Evaluation) { m.ExternalMetrics = []wire.ExternalMetric{} },
			"require an external model"},
		{"a figure out of bounds", program, func(m *wire.Evaluation) { m.ExternalMetrics[1].Sum = -1e102 },
			"sum is out of range"},
		{"a figure twice", program, func(m *wire.Evaluation) { m.ExternalMetrics[1].Name = "accuracy" },
			"must be in ascending order"},
		{"a figure without a name", program, func(m *wire.Evaluation) { m.ExternalMetrics[0].Name = "" },
			"external metric \"\""},
		{"too many figures", program, func(m *wire.Evaluation) {
			m.ExternalMetrics = make([]wire.ExternalMetric, wire.MaxExternalMetrics+1)
		}, "17 entries"},
		{"sums beyond 32 bits", classes, func(m *wire.Evaluation) { m.ConfusionMatrix[1] = math.MaxUint32 },
			"in 4 cells"},
	} {
		m := wire.Hello{Evaluation: c.of()}
		c.change(&m.Evaluation)
		if _, err := wire.DecodeHello(m.Body()); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	for _, x := range notFinite() {
		for i := range 4 {
			e := evaluationOfNumbers()
			*[]*float64{&e.RiskSum, &e.SSE, &e.TargetSum, &e.TargetSquareSum}[i] = x
			m := wire.Hello{Evaluation: e}
			if _, err := wire.DecodeHello(m.Body()); !errors.Is(err, wire.ErrNotFinite) {
				t.Errorf("%v in number %d: error %v", x, i, err)
			}
		}
		e := evaluationOfProgram()
		e.ExternalMetrics[0].Sum = x
		m := wire.Hello{Evaluation: e}
		if _, err := wire.DecodeHello(m.Body()); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("%v of a program: error %v", x, err)
		}
	}
}
