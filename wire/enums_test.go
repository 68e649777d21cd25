package wire_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// lastValues contains the largest value of each enumeration of the protocol.
var lastValues = map[reflect.Type]uint8{
	reflect.TypeFor[wire.PresenceState]():          uint8(wire.PresenceLost),
	reflect.TypeFor[wire.DeclineReason]():          uint8(wire.DeclineStorageFailing),
	reflect.TypeFor[wire.UpdateRefusalReason]():    uint8(wire.RefuseUnsupported),
	reflect.TypeFor[wire.SelectionStatus]():        uint8(wire.StatusNotSelected),
	reflect.TypeFor[wire.AnnouncementPhase]():      uint8(wire.PhaseFinished),
	reflect.TypeFor[wire.RoundKind]():              uint8(wire.KindTraining),
	reflect.TypeFor[wire.PeerMessageType]():        uint8(wire.PeerSignedBeacon),
	reflect.TypeFor[wire.UnknownSectionPolicy]():   uint8(wire.DeclineUnknownSection),
	reflect.TypeFor[wire.DType]():                  uint8(wire.Float64),
	reflect.TypeFor[wire.UpdateFate]():             uint8(wire.FateRoundForgotten),
	reflect.TypeFor[wire.MessageRejectionReason](): uint8(wire.RejectedClone),
	reflect.TypeFor[wire.EnrolmentRefusalReason](): uint8(wire.EnrolmentStorageFailed),
	reflect.TypeFor[wire.RenewalRefusalReason]():   uint8(wire.RenewalStorageFailed),
}

// TestUnknownValuesAreRefused writes unknown values to every enumeration field of every golden message. Decoding must
// fail.
func TestUnknownValuesAreRefused(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, g := range goldens() {
		f := formNamed(t, g.form)
		eachField(g.value, func(path string, field reflect.Value) {
			if field.Kind() != reflect.Uint8 || field.Type() == reflect.TypeFor[uint8]() {
				return
			}
			last, ok := lastValues[field.Type()]
			if !ok {
				t.Fatalf("%s%s: add %v to lastValues", g.file, path, field.Type())
			}
			seen[field.Type()] = true
			for _, x := range []uint8{0, last + 1, 255} {
				if x == 0 && slices.Contains([]string{"hello", "admission", "renewed"}, g.form) {
					continue
				}
				field.SetUint(uint64(x))
				if _, err := f.decode(f.encode(g.value)); err == nil {
					t.Errorf("%s%s = %d is taken", g.file, path, x)
				}
			}
		})
	}
	for typ := range lastValues {
		if !seen[typ] {
			t.Errorf("no golden message has a %v", typ)
		}
	}
}

func TestBoolsAreZeroOrOne(t *testing.T) {
	good := readGolden(t, "task")
	other := linearTask()
	other.Model.HasBias, other.Training.NormalizesStepSize = !other.Model.HasBias, !other.Training.NormalizesStepSize
	other.Mixing.IsUnsealed = !other.Mixing.IsUnsealed
	changed := 0
	for i, b := range other.AppendEncoding(nil) {
		if b == good[i] {
			continue
		}
		changed++
		p := slices.Clone(good)
		p[i] = 2
		if _, err := wire.DecodeTask(p); err == nil {
			t.Errorf("2 is taken for a bool at byte %d", i)
		}
	}
	if changed != 3 {
		t.Errorf("%d bytes were tested, want 3", changed)
	}
}

// TestNamesOfEnumerations checks that all names of an enumeration are different, because they are metric labels, and
// that an unknown value has a recognisable name.
func TestNamesOfEnumerations(t *testing.T) {
	seen := map[string]bool{}
	for i, r := range wire.UpdateRefusalReasons() {
		checkName(t, seen, uint8(r), i, r)
	}
	if r := wire.UpdateRefusalReasons(); r[len(r)-1] != wire.RefuseUnsupported {
		t.Errorf("RefuseReasons ends with %v", r[len(r)-1])
	}
	clear(seen)
	for i, r := range wire.DeclineReasons() {
		checkName(t, seen, uint8(r), i, r)
	}
	if r := wire.DeclineReasons(); r[len(r)-1] != wire.DeclineStorageFailing {
		t.Errorf("DeclineReasons ends with %v", r[len(r)-1])
	}
	clear(seen)
	for i, r := range wire.MessageRejectionReasons() {
		checkName(t, seen, uint8(r), i, r)
	}
	if r := wire.MessageRejectionReasons(); r[len(r)-1] != wire.RejectedClone {
		t.Errorf("RejectionReasons ends with %v", r[len(r)-1])
	}
	for _, x := range []fmt.Stringer{
		wire.PresenceState(0), wire.PresenceState(200), wire.AnnouncementPhase(0), wire.AnnouncementPhase(9),
		wire.RoundKind(9),
		wire.SelectionStatus(9),
		wire.UpdateRefusalReason(99), wire.DeclineReason(99),
	} {
		if !strings.HasPrefix(x.String(), "unknown(") {
			t.Errorf("%T is named %q", x, x)
		}
	}
}

func checkName(t *testing.T, seen map[string]bool, value uint8, i int, name fmt.Stringer) {
	t.Helper()
	if s := name.String(); int(value) != i+1 || seen[s] || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") != "" {
		t.Errorf("%T %d is named %q", name, value, s)
	}
	seen[name.String()] = true
}
