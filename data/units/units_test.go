package units

import (
	"math"
	"strings"
	"testing"
)

func TestBetween(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		in, want float64
	}{
		{"°F", "°C", 212, 100},
		{"[degF]", "Cel", -40, -40},
		{"fahrenheit", "K", 32, 273.15},
		{"℉", "℃", 50, 10},
		{"°C", "°F", 37, 98.6},
		{"kW", "W", 1.5, 1500},
		{"W", "kW", 250, 0.25},
		{"psi", "kPa", 14.5, 99.9739807509},
		{"hPa", "mbar", 1013, 1013},
		{"bar", "psi", 2, 29.0075475},
		{"inHg", "hPa", 29.92, 1013.2075},
		{"kWh", "MJ", 2, 7.2},
		{"km/h", "m/s", 36, 10},
		{"mph", "km/h", 10, 16.09344},
		{"rpm", "Hz", 3000, 50},
		{"m³/h", "L/min", 6, 100},
		{"gal/min", "L/min", 1, 3.785411784},
		{"µg/m³", "mg/m3", 35, 0.035},
		{"\u03bcg/m^3", "ug/m3", 35, 35},
		{"%RH", "%", 48, 48},
		{"/", "%", 0.48, 48},
		{"KWH", "kWh", 3, 3},
		{"Deg C", "°C", 21, 21},
		{"Degrees Celsius", "°C", 21, 21},
		{"furlong", " furlong", 7, 7},
		{"", "", 7, 7},
	} {
		c, err := Between(tt.from, tt.to)
		if got := c.Apply(tt.in); err != nil || math.Abs(got-tt.want) > 1e-7*math.Abs(tt.want) {
			t.Errorf("%v %s = %v %s, error %v; want %v", tt.in, tt.from, got, tt.to, err, tt.want)
		}
	}
}

// TestSpellingsConvertExactly checks that converting between two spellings of a unit does not change a value by
// rounding.
func TestSpellingsConvertExactly(t *testing.T) {
	for _, u := range table {
		names := strings.Fields(u.names)
		for _, name := range names {
			if c, err := Between(name, names[0]); err != nil || c.Apply(21.1) != 21.1 {
				t.Errorf("%s to %s: %v, error %v; want the identity", name, names[0], c, err)
			}
		}
	}
}

func TestBetweenRefuses(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"kPa", "°C", `"kPa" is a unit of pressure, but "°C" is a unit of temperature`},
		{"furlong", "m", `"furlong" is an unknown unit and cannot be converted to "m"`},
		{"m", "furlong", `"m" cannot be converted to "furlong", which is an unknown unit`},
		{"furlong", "parsec", `"furlong" and "parsec" are different units, and both are unknown`},
		{"mw", "W", `"mw" is an unknown unit and cannot be converted to "W"`}, // the unit may be mW or MW
		{"", "W", `"" is an unknown unit and cannot be converted to "W"`},
	} {
		if _, err := Between(tt.from, tt.to); err == nil || err.Error() != tt.want {
			t.Errorf("%s to %s: error %v; want %s", tt.from, tt.to, err, tt.want)
		}
	}
}

// TestSpellingsAreUnique checks that each spelling belongs to one unit. Otherwise the order of the table would decide.
func TestSpellingsAreUnique(t *testing.T) {
	unitByName := map[string]int{}
	for i, u := range table {
		for _, name := range strings.Fields(u.names) {
			if other, found := unitByName[name]; found {
				t.Errorf("%s is a spelling of %s and of %s", name, table[other].names, u.names)
			}
			if normalized(name) != name {
				t.Errorf("%s is not in the normalized form %s and would never be found", name, normalized(name))
			}
			unitByName[name] = i
		}
	}
}
