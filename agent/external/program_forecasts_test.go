package external_test

import (
	"strings"
	"testing"
	"time"
)

// TestPredict checks that a program can return its predictions in several answers.
func TestPredict(t *testing.T) {
	d := newDevice(t, "", time.Minute, nil)
	x := make([]float32, 8)
	all, more, err := d.trainer.Predict(t.Context(), d.problem, x)
	if at := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC); err != nil || !more || len(all) != 2 || all[0].Value != 2.5 ||
		!all[0].RowTime.Equal(at) || all[0].Residual != nil || len(all[1].ClassProbabilities) != 2 ||
		*all[1].Residual != -0.25 {
		t.Errorf("%+v, more %v, error %v", all, more, err)
	}
	all, more, err = d.trainer.Predict(t.Context(), d.problem, x)
	if err != nil || more || len(all) != 1 || all[0].Value != 3 || !all[0].RowTime.IsZero() {
		t.Errorf("then %+v, more %v, error %v", all, more, err)
	}
	for mode, want := range map[string]struct {
		says string
		ends int
	}{"cannot mix": {`do not include "predict"`, 0}, "no value": {"has no value", 1}, "no time": {"invalid frame", 1}} {
		d := newDevice(t, mode, time.Minute, nil)
		all, _, err := d.trainer.Predict(t.Context(), d.problem, x)
		if err == nil || !strings.Contains(err.Error(), want.says) || d.ends() != want.ends || len(all) > 0 {
			t.Errorf("%s: error %v, want %q; it has ended %d times", mode, err, want.says, d.ends())
		}
	}
}
