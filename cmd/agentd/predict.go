package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
)

func predictCommand() *cobra.Command {
	var in modelFolderFlags
	var path, format string
	cmd := &cobra.Command{
		Use:   "predict [FILE]",
		Short: "Predict from the rows of a CSV file or of standard input",
		Long: "Predict from the rows of a CSV file or of standard input.\n\nThe first line contains the names of the " +
			"columns. All features of the model are required; other columns are ignored. The output has one line per " +
			"row, with the row's line number in the file. A row with a value that is not a finite number is skipped " +
			"and reported with its line and column; the exit status is then 1.\n\nThe delimiter, the decimal " +
			"separator and the names of columns are read from the section data of the configuration, if its source " +
			"is csv. The default is the model that the agent uses for predictions. Neither the agent nor a broker " +
			"needs to run.",
		Args: cli.ArgsCheckWithUsageError(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "csv" && format != "json" {
				return cli.UsageErrorf("--format must be csv or json, but is %q", format)
			}
			section, dir, err := loadPredictionInput(cmd, path, &in)
			if err != nil {
				return err
			}
			m, err := readModel(path, dir, cmd.ErrOrStderr())
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
			return predictRows(m, section, name, rows, cmd.OutOrStdout(), cmd.ErrOrStderr(), format)
		},
	}
	in.addFlags(cmd)
	cmd.Flags().StringVarP(&path, "model", "m", "", "file with the model (default: the model that the agent uses for "+
		"predictions)")
	cmd.Flags().StringVar(&format, "format", "csv", "output format: csv, or json with one object per line")
	return cmd
}

// loadPredictionInput returns the configuration section that defines the format of the input files, and the agent's
// state folder. The configuration file is optional if model is the path of a model file.
func loadPredictionInput(cmd *cobra.Command, model string, in *modelFolderFlags) (section *data.Config, dir string,
	err error) {
	s := uncheckedSettings(settings.DefaultAgent())
	err = settings.Load(&s, program, in.configLoader.Path, in.configLoader.Overrides)
	if model != "" && !cmd.Flags().Changed("config") && (errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, fs.ErrPermission)) {
		s, err = uncheckedSettings(settings.DefaultAgent()), nil
	}
	if err != nil {
		return nil, "", err
	}
	m, err := in.federation.namedFederation((*settings.Agent)(&s))
	if err != nil {
		return nil, "", err
	}
	return &m.Data, m.FederationFolder(), nil
}

// readModel reads the model file at path. If path is empty, it reads the active model in the state folder dir.
func readModel(path, dir string, problems io.Writer) (*modelfile.Model, error) {
	if path == "" {
		path = modelfile.ActiveModelPath(dir)
	}
	file, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && path == modelfile.ActiveModelPath(dir) {
		return nil, fmt.Errorf("the agent has no model for predictions (%s): set predict.keep above 0 in its "+
			"configuration and wait for the next model, or set a model file with --model", path)
	}
	if err != nil {
		return nil, err
	}
	m, err := modelfile.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.Run > 0 && m.Version == 0 && m.ParentModel == "" {
		fmt.Fprintf(problems, "%s: warning: %s is model %s, which was not trained in any round\n", program, path,
			m.DisplayName())
	}
	return m, nil
}

// predictRows reads CSV text from in and writes a prediction for each row. It flushes the output whenever it would wait
// for more input. section defines the format of the text, and name is used in errors.
func predictRows(m *modelfile.Model, section *data.Config, name string, in io.Reader, out, problems io.Writer,
	format string) error {
	p, err := m.Predictor()
	if err != nil {
		return err
	}
	r, err := sources.NewRowReader(section, in, name, m.Features)
	if err != nil {
		return err
	}
	w := newPredictionWriter(out, m, format)
	x := make([]float32, len(m.Features))
	rows, bad := 0, 0
	for {
		if r.WouldWait() || w.writeErr != nil {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		line, err := r.Next(x)
		if errors.Is(err, io.EOF) {
			break
		}
		if row := (*data.FileError)(nil); err != nil && !errors.As(err, &row) {
			return errors.Join(err, w.Flush())
		}
		rows++
		if err == nil {
			if err = w.writePrediction(line, p.Predict(x)); err != nil {
				err = &data.FileError{File: name, Line: line, Problem: err.Error()}
			}
		}
		if err != nil {
			bad++
			fmt.Fprintf(problems, "%s: %v\n", program, err)
		}
	}
	err = w.Flush()
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %d of %d rows have no prediction", name, bad, rows))
	}
	return err
}

// predictionWriter writes predictions as CSV or JSON lines.
type predictionWriter struct {
	*bufio.Writer
	writesJSON bool
	jsonPrefix []byte // opening of each JSON object, with the constant fields
	lineBuffer []byte
	writeErr   error // first error while writing; nil if none
}

func newPredictionWriter(out io.Writer, m *modelfile.Model, format string) *predictionWriter {
	w := &predictionWriter{Writer: bufio.NewWriter(out), writesJSON: format == "json"}
	if w.writesJSON {
		g := m.PredictionTarget()
		about := struct {
			Target  string  `json:"target,omitempty"`
			Unit    string  `json:"unit,omitempty"`
			Horizon float64 `json:"horizon_seconds,omitempty"`
			Model   string  `json:"model,omitempty"`
		}{Target: g.TargetColumn, Unit: g.Unit, Horizon: g.Horizon.Seconds()}
		if m.Run > 0 {
			about.Model = m.DisplayName()
		}
		of, err := json.Marshal(about)
		if w.writeErr = err; err == nil {
			w.jsonPrefix = of[1:] // contains only "}" if the object has no constant fields
		}
	} else {
		columns := "line,prediction"
		for c := range m.Architecture.ClassCount() {
			columns += fmt.Sprintf(",p%d", c)
		}
		_, w.writeErr = w.WriteString(columns + "\n")
	}
	return w
}

// writePrediction writes a prediction. It returns an error if the prediction is not a finite number. Write errors are
// returned by Flush.
func (w *predictionWriter) writePrediction(line int, p learner.Prediction) error {
	if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
		return fmt.Errorf("the prediction is not a finite number: %v", p.Value)
	}
	b := w.lineBuffer[:0]
	number := func(before string, v float64) {
		b = strconv.AppendFloat(append(b, before...), v, 'g', -1, 64)
	}
	if !w.writesJSON {
		b = strconv.AppendInt(b, int64(line), 10)
		number(",", p.Value)
		for _, v := range p.ClassProbabilities {
			number(",", v)
		}
	} else {
		b = strconv.AppendInt(append(b, `{"line":`...), int64(line), 10)
		number(`,"prediction":`, p.Value)
		for c, v := range p.ClassProbabilities {
			before := ","
			if c == 0 {
				before = `,"probabilities":[`
			}
			number(before, v)
		}
		if len(p.ClassProbabilities) > 0 {
			b = append(b, ']')
		}
		if len(w.jsonPrefix) > 1 {
			b = append(b, ',')
		}
		b = append(b, w.jsonPrefix...)
	}
	w.lineBuffer = append(b, '\n')
	_, w.writeErr = w.Write(w.lineBuffer)
	return nil
}
