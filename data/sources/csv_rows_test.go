package sources

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
)

const air = "\ufeffstation, time ,test,temp,wind,pm\n" +
	"north,t0,0, 1.5 ,2,10\n" +
	"south,t0,0,NA,,\n" +
	"north,t1,1,3,4,20\n" +
	"\n" +
	"north,t2,0,\"5\",-6e-1,30\n" +
	"north,t3,0,7,8,40\n"

func TestReadCSV(t *testing.T) {
	for _, test := range []struct {
		name   string
		filter RowFilter
		x, y   []float32
	}{
		{"one station", RowFilter{RequiredTextByColumn: map[string]string{"station": "north"}}, []float32{2, 1.5, 4, 3,
			-0.6, 5, 8, 7},
			[]float32{10, 20, 30, 40}},
		{"two conditions", RowFilter{RequiredTextByColumn: map[string]string{"station": "north", "test": "0"},
			ShareCount: 1},
			[]float32{2, 1.5, -0.6, 5, 8, 7}, []float32{10, 30, 40}},
		{"every second of them", RowFilter{RequiredTextByColumn: map[string]string{"station": "north", "test": "0"},
			ShareCount: 2},
			[]float32{2, 1.5, 8, 7}, []float32{10, 40}},
		{"a column of spaces", RowFilter{RequiredTextByColumn: map[string]string{"time": "t2"}}, []float32{-0.6, 5},
			[]float32{30}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := ReadCSV[float32](strings.NewReader(air), "air.csv", []string{"wind", "temp"}, "pm", test.filter)
			if err != nil {
				t.Fatal(err)
			}
			if b := s.All(); !slices.Equal(b.X, test.x) || !slices.Equal(b.Y, test.y) {
				t.Errorf("features %v, want %v; targets %v, want %v", b.X, test.x, b.Y, test.y)
			}
		})
	}
}

// TestReadCSVWithoutTarget checks that targets are 0 if no target column is given, and that missing values of the last
// feature are then still replaced.
func TestReadCSVWithoutTarget(t *testing.T) {
	s, err := ReadCSV[float32](strings.NewReader("a,b\n1,2\n3,NA\n5,6\n"), "f.csv", []string{"a", "b"}, "",
		RowFilter{missingFill: grid.FillRule{Policy: grid.FillMean}})
	if err != nil {
		t.Fatal(err)
	}
	if b := s.All(); !slices.Equal(b.X, []float32{1, 2, 3, 2, 5, 6}) || !slices.Equal(b.Y, []float32{0, 0, 0}) {
		t.Errorf("features %v, targets %v", b.X, b.Y)
	}
}

func TestReadCSVErrors(t *testing.T) {
	wide := strings.Repeat("c,", 33) + "pm\n"
	for _, test := range []struct {
		name, text string
		features   []string
		filter     RowFilter
		want       string
	}{
		{"empty", "", []string{"a"}, RowFilter{}, `f.csv: the file is empty; the first line must name the columns`},
		{"header only", "a,pm\n", []string{"a"}, RowFilter{}, `f.csv: none of the 0 rows of the file is selected`},
		{"nothing matches", "a,pm\n1,2\n", []string{"a"}, RowFilter{RequiredTextByColumn: map[string]string{"a": "2"}},
			`f.csv: none of the 1 rows of the file is selected`},
		{"missing feature", "a,b,pm\n", []string{"a", "c"}, RowFilter{},
			`f.csv: line 1: column "c": this column is missing; the file has the columns "a", "b", "pm"`},
		{"semicolons", "a;pm\n", []string{"a"}, RowFilter{}, `f.csv: line 1: column "a": this column is missing; the ` +
			`file has the columns "a;pm"`},
		{"missing target", "a,b\n", []string{"a"}, RowFilter{},
			`f.csv: line 1: column "pm": this column is missing; the file has the columns "a", "b"`},
		{"missing condition", "a,pm\n", []string{"a"}, RowFilter{RequiredTextByColumn: map[string]string{"z": "1",
			"y": "1"}},
			`f.csv: line 1: column "y": this column is missing; the file has the columns "a", "pm"`},
		{"many columns", wide, []string{"a"}, RowFilter{}, `f.csv: line 1: column "a": this column is missing; the ` +
			`file has the columns ` +
			strings.Repeat(`"c", `, 31) + `"c" and 2 more`},
		{"column twice", "a,a,pm\n", []string{"a"}, RowFilter{}, `f.csv: line 1: column "a": this column occurs ` +
			`twice in the ` +
			`header: rename one of the two columns`},
		{"feature twice", "a,pm\n", []string{"a", "a"}, RowFilter{},
			`f.csv: line 1: column "a": this column occurs twice in features and target`},
		{"target as feature", "a,pm\n", []string{"a", "pm"}, RowFilter{},
			`f.csv: line 1: column "pm": this column occurs twice in features and target`},
		{"no features", "a,pm\n", nil, RowFilter{}, `f.csv: line 1: no feature columns were requested`},
		{"text", "a,pm\n1,2\nNA,3\n", []string{"a"}, RowFilter{}, `f.csv: line 3: column "a": "NA" is a missing ` +
			`value, but a number is required`},
		{"long text", "a,pm\n" + strings.Repeat("é", 40) + ",3\n", []string{"a"}, RowFilter{},
			`f.csv: line 2: column "a": "` + strings.Repeat("é", 32) + `"… is not a number`},
		{"nothing", "a,pm\n1,\n", []string{"a"}, RowFilter{},
			`f.csv: line 2: column "pm": the value is empty, but a number is required`},
		{"NaN", "a,pm\nnan,1\n", []string{"a"}, RowFilter{}, `f.csv: line 2: column "a": "nan" is a missing value, ` +
			`but a number is required`},
		{"Inf", "a,pm\n1,-Inf\n", []string{"a"}, RowFilter{}, `f.csv: line 2: column "pm": "-Inf" is not finite`},
		{"beyond float32", "a,pm\n1e39,1\n", []string{"a"}, RowFilter{}, `f.csv: line 2: column "a": "1e39" is too large`},
		{"beyond float64", "a,pm\n1e999,1\n", []string{"a"}, RowFilter{},
			`f.csv: line 2: column "a": "1e999" is too large`},
		{"ragged", "a,pm\n1,2\n1,2,3\n", []string{"a"}, RowFilter{}, `f.csv: line 3: found 3 fields, but the header ` +
			`has 2: ` +
			`"1,2,3"`},
		{"ragged, not selected", "a,pm\n1\n1,2\n", []string{"a"},
			RowFilter{RequiredTextByColumn: map[string]string{"a": "x"}},
			`f.csv: line 2: found 1 field, but the header has 2: "1"`},
		{"quote", "a,pm\n1,2\n1,\"2\n", []string{"a"}, RowFilter{},
			`f.csv: line 3: column "pm": "\"2" is not a number`},
		{"quote in the header", "a,p\"m\n", []string{"a"}, RowFilter{}, `f.csv: line 1: column "pm": this column is ` +
			`missing; the file has the columns "a", "p\"m"`},
		{"after lines of quotes", "a,pm,note\n1,2,\"x\ny\"\n1,?,z\n", []string{"a"}, RowFilter{},
			`f.csv: line 4: column "pm": "?" is a missing value, but a number is required`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := ReadCSV[float32](strings.NewReader(test.text), "f.csv", test.features, "pm", test.filter)
			var data *data.FileError
			if s != nil || !errors.As(err, &data) || err.Error() != test.want {
				t.Errorf("\n got %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestReadCSVPassesReadFailuresOn(t *testing.T) {
	broken := errors.New("the disk is gone")
	for _, text := range []string{"", "a,pm\n1,2\n"} {
		r := io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))
		_, err := ReadCSV[float64](r, "f.csv", []string{"a"}, "pm", RowFilter{})
		var data *data.FileError
		if !errors.Is(err, broken) || errors.As(err, &data) || err.Error() != "f.csv: the disk is gone" {
			t.Errorf("after %q: %v", text, err)
		}
	}
}

func FuzzReadCSV(f *testing.F) {
	for _, seed := range []string{air, "", "temp,pm\n", "temp,pm\n1,2\n", "temp,pm\n\"1\n\",2\n", "temp,pm\n1e39,nan\n",
		"temp,pm\n1\n"} {
		f.Add(seed, "temp", "0", 2)
	}
	f.Fuzz(func(t *testing.T, text, column, value string, every int) {
		filter := RowFilter{RequiredTextByColumn: map[string]string{column: value}, ShareCount: every}
		s, err := ReadCSV[float32](strings.NewReader(text), "f.csv", []string{"temp"}, "pm", filter)
		if err != nil {
			var data *data.FileError
			if s != nil || !errors.As(err, &data) || data.Problem == "" {
				t.Fatalf("samples %v, error %v", s, err)
			}
			return
		}
		b := s.All()
		if s.Len() == 0 || len(b.X) != s.Len() {
			t.Fatalf("%d samples with %d features", s.Len(), len(b.X))
		}
		for i := range b.X {
			if !data.IsFinite(float64(b.X[i])) || !data.IsFinite(float64(b.Y[i])) {
				t.Fatalf("sample %d is %v, %v", i, b.X[i], b.Y[i])
			}
		}
		all, err := ReadCSV[float32](strings.NewReader(text), "f.csv", []string{"temp"},
			"pm", RowFilter{RequiredTextByColumn: filter.RequiredTextByColumn})
		if err == nil && every > 1 && s.Len() != int(math.Ceil(float64(all.Len())/float64(every))) {
			t.Fatalf("every %d of %d rows are %d", every, all.Len(), s.Len())
		}
	})
}
