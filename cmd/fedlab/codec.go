package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
)

func codecCommand() *cobra.Command {
	var word, file string
	var seed uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use: "codec", Short: "Encode a list of numbers with a codec for model updates",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Encode the numbers of a file with a codec of task.codec, as float32 elements of a vector,
and print the encoded bytes and the numbers that a receiver decodes. The file is a JSON
list, such as [0.5, -1, 3e-4]. docs/SIMULATION.md describes the use of --seed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var name spec.Codec
			if err := name.UnmarshalText([]byte(word)); err != nil {
				return cli.UsageErrorf("--name: %w", err)
			}
			if file == "" {
				return cli.UsageErrorf("--in is required: specify a JSON file with a list of numbers")
			}
			v, err := readNumbers(file)
			if err != nil {
				return err
			}
			p, err := encodeNumbers(name, v, seed)
			if err != nil { // bfloat16 rounds the largest float32 up to infinity
				return fmt.Errorf("%s as %s: %w", file, name, err)
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(p)
			}
			return p.print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&word, "name", "", "codec: "+strings.Join(spec.CodecNames(), ", ")+"; top_k:0.1 sends a tenth of the "+
		"elements, top_k alone sends a twentieth")
	f.StringVar(&file, "in", "", "JSON file with a list of numbers")
	f.Uint64Var(&seed, "seed", 1, "seed of a codec that rounds at random")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}

// readNumbers reads a JSON list of numbers. Each number must be finite when it is converted to float32.
func readNumbers(path string) ([]float32, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []*float64
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s must contain a list of finite numbers, such as [0.5, -1, 3e-4]: %w", path, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s must contain a list of at least one number", path)
	}
	v := make([]float32, len(all))
	for i, x := range all {
		if x == nil {
			return nil, fmt.Errorf("%s: element %d is null, but must be a number", path, i)
		}
		if v[i] = float32(*x); v[i]-v[i] != 0 {
			return nil, fmt.Errorf("%s: element %d is %v, which is not finite as a float32", path, i, *x)
		}
	}
	return v, nil
}

// encodedNumbers is the result of encoding a list of numbers with a codec.
type encodedNumbers struct {
	Codec    spec.Codec `json:"codec"`
	Seed     uint64     `json:"seed"`
	Elements int        `json:"elements"`
	Length   int        `json:"length"` // length of the encoding in bytes
	Ratio    float64    `json:"ratio"`  // length divided by the length of uncompressed float32 elements
	Bytes    string     `json:"bytes"`  // encoded bytes as hexadecimal text
	Decoded  []float32  `json:"decoded"`
}

func encodeNumbers(name spec.Codec, v []float32, seed uint64) (*encodedNumbers, error) {
	c := codec.ForName[float32](name)
	p := c.Append(nil, v, task.AgentRand(task.CodecSeed(seed), 0, 0))
	r := &encodedNumbers{Codec: name, Seed: seed, Elements: len(v), Length: len(p),
		Ratio: float64(len(p)) / float64(4*len(v)),
		Bytes: hex.EncodeToString(p), Decoded: make([]float32, len(v))}
	return r, c.Decode(r.Decoded, p)
}

func (p *encodedNumbers) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d elements encoded as %s: %d bytes, which is %.4g times their size as float32\n%s\n%v\n",
		p.Elements, p.Codec, p.Length,
		p.Ratio, p.Bytes, p.Decoded)
	return err
}
