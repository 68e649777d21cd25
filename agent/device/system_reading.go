package device

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// SystemReading contains measurements of the device. A value that the system does not provide is nil.
type SystemReading struct {
	LoadPerCore          *float64 // load average of the last minute, divided by the number of cores
	TemperatureCelsius   *float64 // temperature of the hottest sensor, °C
	BatteryPercent       *float64 // charge of the emptiest battery, percent
	IsDischarging        bool     // true if a battery is discharging (no mains power)
	AvailableMemoryBytes *float64 // memory available to programs without swapping, in bytes
}

// SystemReader reads Linux system files below the folder Root, normally "/". On other systems the readings are empty.
type SystemReader struct {
	Root  string
	Cores int // number of processor cores; 0 means the number of cores of this machine
}

// Read returns the current measurements of the device.
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

// readFile returns the text of a file, or "" if the file cannot be read.
func (s SystemReader) readFile(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// parseFirstNumber parses the first word of a text as a number and multiplies it by scale. It returns nil if the word
// is not a number.
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

// readHottestTemperature returns the temperature of the hottest sensor. It ignores implausible values: some sensors
// report 0 or a minimum value while they are off.
func (s SystemReader) readHottestTemperature() (hottest *float64) {
	for _, pattern := range []string{"sys/class/thermal/thermal_zone*/temp", "sys/class/hwmon/hwmon*/temp*_input"} {
		paths, err := filepath.Glob(s.pathUnderRoot(pattern))
		if err != nil {
			panic("device: " + err.Error()) // This happens only if the pattern is invalid.
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

// readBattery returns the state of the device's own batteries. It ignores the batteries of peripherals.
func (s SystemReader) readBattery() (emptiest *float64, discharging bool) {
	paths, err := filepath.Glob(s.pathUnderRoot("sys/class/power_supply/*"))
	if err != nil {
		panic("device: " + err.Error()) // This happens only if the pattern is invalid.
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
