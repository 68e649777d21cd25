package device

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// lay writes simulated system files, each given as "path: text", and returns a reader for them.
func lay(t *testing.T, files ...string) SystemReader {
	t.Helper()
	s := SystemReader{Root: t.TempDir(), Cores: 4}
	for _, f := range files {
		name, text, _ := strings.Cut(f, ": ")
		path := filepath.Join(s.Root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

const (
	supply = "sys/class/power_supply/"
	zone   = "sys/class/thermal/thermal_zone"
)

func show(r SystemReading) string {
	var b strings.Builder
	for _, x := range []struct {
		name  string
		value *float64
	}{{"load", r.LoadPerCore}, {"temperature", r.TemperatureCelsius}, {"battery", r.BatteryPercent}, {"memory",
		r.AvailableMemoryBytes}} {
		if x.value != nil {
			fmt.Fprintf(&b, "%s %g ", x.name, *x.value)
		}
	}
	if r.IsDischarging {
		b.WriteString("discharging")
	}
	return strings.TrimSpace(b.String())
}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
		want  string
	}{
		{"nothing", nil, ""},
		{"a gateway", []string{
			"proc/loadavg: 2.00 1.50 1.00 3/512 9999",
			"proc/meminfo: MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:     500 kB\nBuffers: 1 kB",
			zone + "0/temp: 41500", zone + "1/temp: 48250", "sys/class/hwmon/hwmon0/temp1_input: 44000",
		}, "load 0.5 temperature 48.25 memory 512000"},
		{"a phone", []string{
			supply + "battery/type: Battery", supply + "battery/capacity: 63", supply + "battery/status: Discharging",
			supply + "usb/type: USB", supply + "usb/online: 0",
		}, "battery 63 discharging"},
		{"charging", []string{supply + "BAT0/type: Battery", supply + "BAT0/capacity: 12", supply +
			"BAT0/status: Charging"}, "battery 12"},
		{"two batteries", []string{
			supply + "BAT0/type: Battery", supply + "BAT0/capacity: 80", supply + "BAT0/status: Full",
			supply + "BAT1/type: Battery", supply + "BAT1/capacity: 40", supply + "BAT1/status: Discharging",
		}, "battery 40 discharging"},
		{"a wireless mouse", []string{supply + "mouse/type: Battery", supply + "mouse/scope: Device", supply +
			"mouse/capacity: 5", supply + "mouse/status: Discharging"}, ""},
		{"sensors that are off", []string{zone + "0/temp: 0", zone + "1/temp: -274000", zone + "2/temp: 4294967", zone +
			"3/temp: 30000"}, "temperature 30"},
		{"rubbish", []string{
			"proc/loadavg: NaN", "proc/meminfo: MemAvailable: much", zone + "0/temp: hot", supply + "b/type: Battery",
			supply + "b/capacity: ", supply + "b/status: Unknown",
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := show(lay(t, tt.files...).Read()); got != tt.want {
				t.Errorf("read %q, want %q", got, tt.want)
			}
		})
	}
}

// TestReadThisMachine checks that a Linux machine provides at least its load and available memory.
func TestReadThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/loadavg"); err != nil {
		t.Skip("there is no /proc here")
	}
	if r := (SystemReader{Root: "/"}).Read(); r.LoadPerCore == nil || *r.LoadPerCore < 0 ||
		r.AvailableMemoryBytes == nil ||
		*r.AvailableMemoryBytes <= 0 {
		t.Errorf("read %q", show(r))
	}
}

func of(x float64) *float64 { return &x }

func TestJudge(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	stopped := func(r OwnerRule) RuleVerdict { return RuleVerdict{LocalStepShare: 0, DecidingRule: r} }
	heat := OwnerRules{Temperature: EaseStopBand{EaseThreshold: 60, StopThreshold: 80}}
	cell := OwnerRules{Battery: EaseStopBand{EaseThreshold: 50, StopThreshold: 20}}
	for _, tt := range []struct {
		name   string
		rules  OwnerRules
		x      SystemReading
		before RuleVerdict
		share  float64
		rule   OwnerRule
	}{
		{"no rules", OwnerRules{}, SystemReading{LoadPerCore: of(99), TemperatureCelsius: of(120),
			BatteryPercent: of(1),
			IsDischarging:  true},
			RuleVerdict{},
			1, RuleNone},
		{"cool", heat, SystemReading{TemperatureCelsius: of(60)}, RuleVerdict{}, 1, RuleNone},
		{"warm", heat, SystemReading{TemperatureCelsius: of(65)}, RuleVerdict{}, 0.75, RuleTemperature},
		{"hot", heat, SystemReading{TemperatureCelsius: of(80)}, RuleVerdict{}, 0, RuleTemperature},
		{"still warm after it was hot", heat, SystemReading{TemperatureCelsius: of(65)}, stopped(RuleTemperature), 0,
			RuleTemperature},
		{"cool after it was hot", heat, SystemReading{TemperatureCelsius: of(59)}, stopped(RuleTemperature), 1,
			RuleNone},
		{"warm after it was busy", heat, SystemReading{TemperatureCelsius: of(65)}, stopped(RuleLoad), 0.75,
			RuleTemperature},
		{"no sensor", heat, SystemReading{}, RuleVerdict{}, 1, RuleNone},
		{"busy", OwnerRules{Load: EaseStopBand{EaseThreshold: 1, StopThreshold: 2}},
			SystemReading{LoadPerCore: of(1.5)},
			RuleVerdict{}, 0.5,
			RuleLoad},
		{"a step", OwnerRules{Load: EaseStopBand{EaseThreshold: 2, StopThreshold: 2}},
			SystemReading{LoadPerCore: of(2)},
			RuleVerdict{}, 0, RuleLoad},
		{"below a step", OwnerRules{Load: EaseStopBand{EaseThreshold: 2, StopThreshold: 2}},
			SystemReading{LoadPerCore: of(1.9)},
			RuleVerdict{}, 1,
			RuleNone},
		{"full", cell, SystemReading{BatteryPercent: of(90), IsDischarging: true}, RuleVerdict{}, 1, RuleNone},
		{"half empty", cell, SystemReading{BatteryPercent: of(35), IsDischarging: true}, RuleVerdict{}, 0.5,
			RuleBattery},
		{"empty", cell, SystemReading{BatteryPercent: of(20), IsDischarging: true}, RuleVerdict{}, 0, RuleBattery},
		{"empty, on mains", cell, SystemReading{BatteryPercent: of(5)}, stopped(RuleBattery), 1, RuleNone},
		{"not on mains", OwnerRules{RequiresMainsPower: true}, SystemReading{BatteryPercent: of(99),
			IsDischarging: true},
			RuleVerdict{}, 0,
			RuleBattery},
		{"on mains", OwnerRules{RequiresMainsPower: true}, SystemReading{}, RuleVerdict{}, 1, RuleNone},
		{"short of memory", OwnerRules{MinFreeMemoryBytes: 1000}, SystemReading{AvailableMemoryBytes: of(999)},
			RuleVerdict{}, 0,
			RuleMemory},
		{"enough memory", OwnerRules{MinFreeMemoryBytes: 1000}, SystemReading{AvailableMemoryBytes: of(1000)},
			RuleVerdict{}, 1,
			RuleNone},
		{"at night only", OwnerRules{AllowedTimeWindows: windows("22:00-06:00")}, SystemReading{}, RuleVerdict{}, 0,
			RuleTimeWindow},
		{"at noon too", OwnerRules{AllowedTimeWindows: windows("22:00-06:00", "12:00-13:00")},
			SystemReading{}, RuleVerdict{}, 1, RuleNone},
		{"the worst decides", OwnerRules{Temperature: EaseStopBand{60, 80}, Load: EaseStopBand{1, 2}},
			SystemReading{TemperatureCelsius: of(65), LoadPerCore: of(1.5)}, RuleVerdict{}, 0.5, RuleLoad},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.rules.JudgeReading(noon, tt.x, tt.before)
			if math.Abs(v.LocalStepShare-tt.share) > 1e-12 || v.DecidingRule != tt.rule ||
				v.MayWork() != (tt.share > 0) {
				t.Errorf("share %v by %s, want %v by %s", v.LocalStepShare, v.DecidingRule, tt.share, tt.rule)
			}
			if (v.DeclineReason() == 0) != v.MayWork() {
				t.Errorf("declines with %v at a share of %v", v.DeclineReason(), v.LocalStepShare)
			}
		})
	}
}

func TestDeclines(t *testing.T) {
	var seen []wire.DeclineReason
	for _, r := range AllRules() {
		s := r.explainStop()
		if s.reason == 0 || slices.Contains(seen, s.reason) || s.problem == "" || s.configKeys == "" {
			t.Errorf("%s declines with %+v", r, s)
		}
		seen = append(seen, s.reason)
	}
}

func TestBlind(t *testing.T) {
	r := OwnerRules{Load: EaseStopBand{1, 2}, Temperature: EaseStopBand{60, 80}, Battery: EaseStopBand{50, 20},
		RequiresMainsPower: true, MinFreeMemoryBytes: 1,
		AllowedTimeWindows: windows("00:00-01:00")}
	if got := fmt.Sprint(r.RulesWithoutSensor(SystemReading{LoadPerCore: of(1)})); got != "[temperature memory]" {
		t.Errorf("blind to %s", got)
	}
	if r := (&OwnerRules{}); len(r.RulesWithoutSensor(SystemReading{})) > 0 || r.HasRules() {
		t.Error("no rules, and something is missed")
	}
}

func windows(texts ...string) spec.TimeWindows {
	all, err := spec.ParseTimeWindows(texts)
	if err != nil {
		panic(err)
	}
	return all
}
