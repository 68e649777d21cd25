package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/spec"
)

// codecOf runs the command on a file with this text.
func codecOf(t *testing.T, text string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "v.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return clitest.Run(rootCommand(), append([]string{"codec", "--in", file}, args...)...)
}

// TestCodec checks each codec with values that it encodes exactly, such as multiples of 7/7 and 127/127, so that no
// value is rounded at random. For the codecs bfloat16 and raw, the encoded bytes can be checked directly.
func TestCodec(t *testing.T) {
	for _, tt := range []struct {
		name       spec.Codec
		text, want string
	}{
		{spec.CodecRaw, `[1, -2.5, 0.1]`, `"elements":3,"length":12,"ratio":1,"bytes":"0000803f000020c0cdcccc3d",` +
			`"decoded":[1,-2.5,0.1]`},
		{spec.CodecBFloat16, `[1, -2.5, 0.1]`, `"elements":3,"length":6,"ratio":0.5,"bytes":"803f20c0cd3d",` +
			`"decoded":[1,-2.5,0.100097656]`},
		{spec.CodecInt8, `[127, -1, 2, 0]`, `"elements":4,"length":8,"ratio":0.5,"bytes":"0000803f7fff0200",` +
			`"decoded":[127,-1,2,0]`},
		{spec.CodecInt4, `[7, -1, 2, 0, -7]`, `"elements":5,"length":7,"ratio":0.35,"bytes":"0000803ff70209",` +
			`"decoded":[7,-1,2,0,-7]`},
	} {
		for _, seed := range []string{"1", "2"} {
			want := `{"codec":"` + string(tt.name) + `","seed":` + seed + `,` + tt.want + "}\n"
			args := []string{"--name", string(tt.name), "--seed", seed, "--json"}
			if code, stdout, stderr := codecOf(t, tt.text, args...); code != 0 || stdout != want {
				t.Errorf("exit %d, %s%s\nwant %s", code, stdout, stderr, want)
			}
		}
	}
	if _, stdout, _ := codecOf(t, `[7, -1]`, "--name", "int4"); stdout !=
		"2 elements encoded as int4: 5 bytes, which is 0.625 times their size as float32\n0000803ff7\n[7 -1]\n" {
		t.Errorf("without --json it prints %s", stdout)
	}
}

// TestCodecDraws checks that numbers between two representable values are rounded at random, and that the same seed
// yields the same bytes.
func TestCodecDraws(t *testing.T) {
	const numbers = `[7, 0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5]`
	_, golden, _ := codecOf(t, numbers, "--name", "int4", "--seed", "1", "--json")
	if want := `"bytes":"0000803f1731f3ee"`; !strings.Contains(golden, want) {
		t.Errorf("%swant %s", golden, want)
	}
	_, signs, _ := codecOf(t, `[1, -2.5, 0.5]`, "--name", "signs", "--seed", "1", "--json")
	if want := `"length":13,"ratio":1.0833333333333333,"bytes":"0000c03f4b4ef9ff9e9760560a","decoded":[0,-3,0]}`; !strings.Contains(signs, want) {
		t.Errorf("%swant %s", signs, want)
	}
	_, largest, _ := codecOf(t, `[1, -2.5, 0.5, 2.5]`, "--name", "top_k:0.3", "--json")
	if want := `"codec":"top_k:0.3","seed":1,"elements":4,"length":8,"ratio":0.5,"bytes":"01000000000020c0",` +
		`"decoded":[0,-2.5,0,0]}`; !strings.Contains(largest, want) {
		t.Errorf("%swant %s", largest, want)
	}
	if _, again, _ := codecOf(t, numbers, "--name", "int4", "--seed", "1", "--json"); again != golden {
		t.Errorf("%sand then %s", golden, again)
	}
	_, one, _ := codecOf(t, numbers, "--name", "int4", "--seed", "1")
	if _, two, _ := codecOf(t, numbers, "--name", "int4", "--seed", "2"); one == two {
		t.Errorf("two seeds draw the same: %s", one)
	}
}

func TestCodecRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`[1, 1e39]`: `v.json: element 1 is 1e+39, which is not finite as a float32`,
		`[1e999]`: `v.json must contain a list of finite numbers, such as [0.5, -1, 3e-4]: json: cannot ` +
			`unmarshal number 1e999`,
		`[NaN]`: `v.json must contain a list of finite numbers, such as [0.5, -1, 3e-4]: invalid character ` +
			`'N'`,
		`{"v": [1]}`:     `v.json must contain a list of finite numbers`,
		`[1, null]`:      `v.json: element 1 is null, but must be a number`,
		`[]`:             `v.json must contain a list of at least one number`,
		`[3.4028235e38]`: `v.json as bfloat16: element 0 is +Inf`,
	} {
		if code, _, stderr := codecOf(t, text, "--name", "bfloat16"); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s\nwant exit 1 and %s", text, code, stderr, want)
		}
	}
	for args, want := range map[string]string{
		"--name zip":               `fedlab: --name: want raw, bfloat16, int8, int4, signs or top_k:0.05, got "zip"`,
		"--name top_k:0.5":         "fedlab: --name: expected a share of the elements above 0 and below 0.5",
		"--in v.json":              `fedlab: --name: want raw, bfloat16, int8, int4, signs or top_k:0.05, got ""`,
		"--name int4":              "fedlab: --in is required: specify a JSON file with a list of numbers",
		"--name int4 --seed -1":    `invalid argument "-1" for "--seed" flag`,
		"--name int4 --in v.jsonx": "fedlab: open v.jsonx: no such file or directory",
	} {
		code, _, stderr := clitest.Run(rootCommand(), append([]string{"codec"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s\nwant %s", args, code, stderr, want)
		}
	}
}
