package sparkplug

import (
	"os"
	"reflect"
	"testing"
	"time"
)

// TestRoundTrip checks that all kinds of metrics are decoded as they were encoded.
func TestRoundTrip(t *testing.T) {
	pressure := NewDouble("pressure", 1.5)
	pressure.Unit, pressure.Alias, pressure.HasAlias, pressure.Timestamp = "bar", 7, true, 1772366400000
	want := Payload{Timestamp: 1772366400001, Seq: 255, HasSeq: true, Metrics: []Metric{pressure,
		NewInt64(BirthSessionMetric, 3), NewBoolean("on", true), NewString("model", "a/1"), NewNull("residual", Double),
		{Name: "float", DataType: 9, ValueField: FieldFloat, Bits: 0x41ac0000}, {Alias: 9, HasAlias: true}}}
	got, err := Decode(want.Encode())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, %v; want %+v", got, err, want)
	}
	if session := got.BirthSession(); session != "3" {
		t.Errorf("birth session %q", session)
	}
}

// TestDamage checks that decoding a payload that was truncated or changed never panics.
func TestDamage(t *testing.T) {
	p := RebirthCommand(time.Unix(1772366400, 0))
	encoded := p.Encode()
	if got, err := Decode(encoded); err != nil || !got.RequestsRebirth() {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Decode(nil); err == nil {
		t.Error("an empty payload gives no error")
	}
	withUnit := Payload{Metrics: []Metric{{Name: "a", Unit: "bar"}}}
	for _, whole := range [][]byte{encoded, withUnit.Encode()} {
		for i := range whole {
			_, _ = Decode(whole[:i]) // must not panic
			for bit := range 8 {
				damaged := append([]byte{}, whole...)
				damaged[i] ^= 1 << bit
				_, _ = Decode(damaged) // must not panic
			}
		}
	}
}

// TestDocumented decodes and encodes the NDATA message in chapter 6 of the specification. SOURCE.md in the folder of
// the file names its source.
func TestDocumented(t *testing.T) {
	documented, err := os.ReadFile("../sources/testdata/devices/05c-sparkplug-ndata.bin")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(documented)
	if err != nil || len(p.Metrics) == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if again := p.Encode(); !reflect.DeepEqual(again, documented) {
		t.Errorf("encoded %x, want %x", again, documented)
	}
}
