package device

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// SystemReading is what the system tells of itself. A value that it does not have is nil.
type SystemReading struct {
	LoadPerCore          *float64 // average number of programs that ran or wanted to, in the last minute, per core
	TemperatureCelsius   *float64 // °C, of the hottest sensor
	BatteryPercent       *float64 // percent, of the emptiest battery
	IsDischarging        bool     // a battery is, and so the device is not on mains
	AvailableMemoryBytes *float64 // bytes available to programs without swapping
}

// SystemReader reads Linux's files under a root, "/" but in tests. On other systems
// there are none, and the readings are empty.
type SystemReader struct {
	Root  string
	Cores int // 0 = those of this machine
}

// Read reads what there is now.
func (s SystemReader) Read() SystemReading {
	var r SystemReading
	r.LoadPerCore = s.readLoadPerCore()
	r.TemperatureCelsius = s.readHottestTemperature()
	r.BatteryPercent, r.IsDischarging = s.readBattery()
	r.AvailableMemoryBytes = s.readAvailableMemory()
	return r
}

func (s SystemReader) pathUnderRoot(name string) string {
	return filepath.Join(s.Root, filepath.FromSlash(name))
}

// readFile is a file's text; empty if it cannot be read.
func (s SystemReader) readFile(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// parseFirstNumber reads the first word of a text; nil if it is none.
func parseFirstNumber(text string, scale float64) *float64 {
	word, _, _ := strings.Cut(text, " ")
	x, err := strconv.ParseFloat(word, 64)
	if err != nil || x-x != 0 {
		return nil
	}
	x *= scale
	return &x
}

func (s SystemReader) readLoadPerCore() *float64 {
	cores := s.Cores
	if cores == 0 {
		cores = runtime.NumCPU()
	}
	return parseFirstNumber(s.readFile(s.pathUnderRoot("proc/loadavg")), 1/float64(cores))
}

// readHottestTemperature is that of the hottest sensor that makes sense: some report 0,
// or the lowest number, while they are off.
func (s SystemReader) readHottestTemperature() (hottest *float64) {
	for _, pattern := range []string{"sys/class/thermal/thermal_zone*/temp", "sys/class/hwmon/hwmon*/temp*_input"} {
		paths, err := filepath.Glob(s.pathUnderRoot(pattern))
		if err != nil {
			panic("device: " + err.Error()) // of the pattern
		}
		for _, path := range paths {
			t := parseFirstNumber(s.readFile(path), 1e-3)
			if t != nil && *t > 0 && *t < 200 && (hottest == nil || *t > *hottest) {
				hottest = t
			}
		}
	}
	return hottest
}

// readBattery reads the device's own batteries, not those of what is connected to it.
func (s SystemReader) readBattery() (emptiest *float64, discharging bool) {
	paths, err := filepath.Glob(s.pathUnderRoot("sys/class/power_supply/*"))
	if err != nil {
		panic("device: " + err.Error()) // of the pattern
	}
	for _, dir := range paths {
		if s.readFile(filepath.Join(dir, "type")) != "Battery" || s.readFile(filepath.Join(dir, "scope")) == "Device" {
			continue
		}
		if level := parseFirstNumber(s.readFile(filepath.Join(dir, "capacity")), 1); level != nil &&
			(emptiest == nil || *level < *emptiest) {
			emptiest = level
		}
		discharging = discharging || s.readFile(filepath.Join(dir, "status")) == "Discharging"
	}
	return emptiest, discharging
}

func (s SystemReader) readAvailableMemory() *float64 {
	for line := range strings.Lines(s.readFile(s.pathUnderRoot("proc/meminfo"))) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			return parseFirstNumber(strings.TrimSpace(rest), 1024)
		}
	}
	return nil
}
