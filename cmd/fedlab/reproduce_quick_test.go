//go:build !race

// The race detector makes these tests ten times slower. Their concurrent code has its own tests in internal/reproduce.

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/lab/reproduce"
)

// promised lists, for each experiment, values that its output must contain, by the keys in docs/EXPERIMENTS.md.
var promised = map[string]string{
	"linear-gain": "K1_L1_E1_sw0 K10_L10_E1_sw0_theory K100_L100_E1_sw0_ci95",
	"lab-1":       "K100_L100_E1_sw0 K100_L100_E1_sw0.1_theory",
	"lab-2":       "K100_L100_E1_sw0 K100_L10_E1_sw0_ci95",
	"lab-3":       "K100_L10_E1_sw0 K100_L10_E10_sw0_theory",
	"lab-4":       "K100_L10_E10_sw0.1 K100_L100_E1_sw0.1_ci95",
	"async":       "K100_L1_E1_sw0 K100_L1_E1_sw0.1 K1_L1_E1_sw0_theory",
	"bias":        "unnormalised_x unnormalised_y unnormalised_to_sumEJ normalised_to_w0",
	"sampling":    "without_L1 without_L8 with_L1 with_L8 without_L8_theory",
	"msd":         "simulated exact first_order",
	"bound":       "L1_eta0.25_tau5_T40_s1_left L1_eta0.25_tau5_T40_s1_right",
	"toy":         "loss accuracy",
	"saddle":      "L1_ones_escape L10_ones_final_J L50_zero_v_gradnorm2 L100_zero_lambda_min",
	"feddec": "feddec_r0.35_H10_t5000 feddec_r0.5_H100_t5000 fedavg_H10_t5000 fedavg_H100_t5000 " +
		"ratio_r0.35_H10 ratio_r0.35_H100 ratio_r0.5_H10 ratio_r0.5_H100",
	"feddec-failures": "feddec_r0.35_H10_t5000 feddec_r0.5_H100_t5000 ratio_r0.35_H100 ratio_r0.5_H10",
	"spectrum": "best_geo_r0.35_n20 best_random_p0.3_n20 metropolis_geo_r0.5_n10 maxdegree_random_p0.7_n40 " +
		"fastest_geo_r0.65_n40 best_geo_r0.35_n20_sd",
	"personal": "softmax_global softmax_alone softmax_ditto softmax_finetune_worst mlp_global mlp_layers " +
		"mlp_layers_worst_ci95",
	"anomalies": "recall_offset_5 precision_offset_5_ci95 bound_recall_noise_3 bound_precision_noise_3",
	"windows":   "conv1d conv1d_ci95 mlp_2 mlp_64_ci95 mlp_256_step",
	"robust":    "none_mean none_median_ci95 signflip:10_mean signflip:10_refuse_above signflip:10_centered_0.1",
}

// TestReproduceQuick runs the quick form of all experiments. Every claim must hold, and each experiment must print one
// line.
func TestReproduceQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("all experiments are not short")
	}
	dir := t.TempDir()
	code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "--quick", "--json", "--out", dir)
	if code != 0 {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	var ids, want []string
	for line := range strings.Lines(stdout) {
		var o struct {
			ID      string
			Holds   bool
			Seconds float64
			Values  map[string]float64
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil || !o.Holds || o.Seconds <= 0 || len(o.Values) == 0 {
			t.Errorf("%v in %s", err, line)
		}
		for _, key := range strings.Fields(promised[o.ID]) {
			if _, ok := o.Values[key]; !ok {
				t.Errorf("%s has no value %s", o.ID, key)
			}
		}
		ids = append(ids, o.ID)
	}
	for _, e := range reproduce.All() {
		want = append(want, e.About().ID)
		if promised[e.About().ID] == "" {
			t.Errorf("nothing is promised of %s", e.About().ID)
		}
	}
	if !slices.Equal(ids, want) {
		t.Errorf("ran %q, want %q", ids, want)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || bytes.Count(page, []byte("<svg")) < len(want) {
		t.Errorf("report.html has %d plots, %v", bytes.Count(page, []byte("<svg")), err)
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "lab-3.svg")); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
		t.Errorf("lab-3.svg: %v", err)
	}
}
