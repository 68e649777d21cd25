package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
)

func predictCommand() *cobra.Command {
	var in modelFolder
	var path, format string
	cmd := &cobra.Command{
		Use:   "predict [FILE]",
		Short: "Predict from the rows of a CSV file, or of standard input",
		Long: "Predict from the rows of a CSV file, or of standard input, whose first line names the columns. The " +
			"model's features must be among them; others are passed over. A line is written for each row, with its " +
			"number in the file. A row with a field that is no finite number is reported with line and column, and " +
			"left out; the exit status is 1 then. The model is the one that the agent uses, unless --model names a " +
			"file: neither the agent nor a broker has to run.",
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "csv" && format != "json" {
				return cli.Usage("--format is %q: want csv or json", format)
			}
			m, err := readModel(path, &in)
			if err != nil {
				return err
			}
			name, rows := "standard input", cmd.InOrStdin()
			if len(args) > 0 {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				name, rows = args[0], f
			}
			return predictRows(m, name, rows, cmd.OutOrStdout(), cmd.ErrOrStderr(), format)
		},
	}
	in.l.Flags(cmd, program)
	cmd.Flags().StringVarP(&path, "model", "m", "", "a model's file (default: the model that the agent uses)")
	cmd.Flags().StringVar(&format, "format", "csv", "of what is written: csv or json, one object per line")
	return cmd
}

// readModel reads the model's file at path, or the one that the agent uses.
func readModel(path string, in *modelFolder) (*modelfile.Model, error) {
	if path == "" {
		dir, err := in.dir()
		if err != nil {
			return nil, err
		}
		path = modelfile.ActivePath(dir)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := modelfile.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// maxRow bounds a row, in bytes: a quote without an end would have all of a stream read into memory.
const maxRow = 1 << 20

// bounded passes on r until a row is too long.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a row has over %d bytes: a quote may be missing", maxRow)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// predictRows writes a prediction for each row of CSV text called name, as soon as nothing more is there to be read.
func predictRows(m *modelfile.Model, name string, in io.Reader, out, problems io.Writer, format string) error {
	p, err := m.Predictor()
	if err != nil {
		return err
	}
	limit := &bounded{in, maxRow}
	buffer := bufio.NewReader(limit)
	c := csv.NewReader(buffer)
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return fmt.Errorf("%s: the first line must name the columns: %w", name, err)
	}
	columns, err := findColumns(header, m.Features)
	if err != nil {
		return fmt.Errorf("%s: line 1: %w", name, err)
	}
	w := newPredictionWriter(out, m, format)
	x := make([]float32, len(columns))
	rows, bad := 0, 0
	for {
		if buffer.Buffered() == 0 || w.failed != nil {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		limit.left = maxRow
		record, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if parse := new(csv.ParseError); err != nil && !errors.As(err, &parse) {
			return errors.Join(fmt.Errorf("%s: %w", name, err), w.Flush())
		}
		rows++
		line := 0
		if err == nil {
			line, _ = c.FieldPos(0)
			err = parseRow(x, record, columns, m.Features)
		}
		if err == nil {
			err = w.write(line, p.Predict(x))
		}
		if err != nil {
			bad++
			fmt.Fprintf(problems, "%s: %s: %s\n", program, name, rowProblem(err, line))
		}
	}
	err = w.Flush()
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %d of %d rows have no prediction", name, bad, rows))
	}
	return err
}

// rowProblem says what is wrong with the row that begins at a line.
func rowProblem(err error, line int) string {
	if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
		return fmt.Sprintf("line %d: %v", parse.Line, parse.Err)
	}
	return fmt.Sprintf("line %d: %v", line, err)
}

// findColumns returns where the features are.
func findColumns(header, features []string) ([]int, error) {
	names := make([]string, len(header))
	for i, h := range header {
		names[i] = strings.TrimSpace(strings.TrimPrefix(h, "\ufeff"))
	}
	var columns []int
	for _, f := range features {
		i := slices.Index(names, f)
		if i < 0 {
			return nil, fmt.Errorf("the column %q of the model is missing; the columns are %q", f, names)
		}
		columns = append(columns, i)
	}
	return columns, nil
}

// parseRow takes the features of a record.
func parseRow(x []float32, record []string, columns []int, features []string) error {
	for j, column := range columns {
		text := strings.TrimSpace(record[column])
		v, err := strconv.ParseFloat(text, 64)
		x[j] = float32(v) // as training rounds
		switch {
		case text == "":
			return fmt.Errorf("column %q: empty where a number is needed", features[j])
		case err != nil || x[j]-x[j] != 0:
			return fmt.Errorf("column %q: %.40q is not a finite number", features[j], text)
		}
	}
	return nil
}

// predictionWriter writes predictions as CSV or JSON lines.
type predictionWriter struct {
	*bufio.Writer
	json   bool
	line   []byte
	failed error // to write
}

func newPredictionWriter(out io.Writer, m *modelfile.Model, format string) *predictionWriter {
	w := &predictionWriter{Writer: bufio.NewWriter(out), json: format == "json"}
	if !w.json {
		columns := "line,prediction"
		for c := range m.Architecture.Classes() {
			columns += fmt.Sprintf(",p%d", c)
		}
		_, w.failed = w.WriteString(columns + "\n")
	}
	return w
}

// write writes a prediction. The error says that it is no number; a failure of the file is returned by Flush.
func (w *predictionWriter) write(line int, p learner.Prediction) error {
	if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
		return fmt.Errorf("the prediction is %v", p.Value)
	}
	b := w.line[:0]
	number := func(before string, v float64) {
		b = strconv.AppendFloat(append(b, before...), v, 'g', -1, 64)
	}
	if !w.json {
		b = strconv.AppendInt(b, int64(line), 10)
		number(",", p.Value)
		for _, v := range p.Classes {
			number(",", v)
		}
	} else {
		b = strconv.AppendInt(append(b, `{"line":`...), int64(line), 10)
		number(`,"prediction":`, p.Value)
		for c, v := range p.Classes {
			before := ","
			if c == 0 {
				before = `,"probabilities":[`
			}
			number(before, v)
		}
		if len(p.Classes) > 0 {
			b = append(b, ']')
		}
		b = append(b, '}')
	}
	w.line = append(b, '\n')
	_, w.failed = w.Write(w.line)
	return nil
}
