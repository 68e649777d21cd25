// Package units converts values between units of measurement, such as °F to °C.
//
// It knows the units that sensors of buildings, industry and weather stations report, in the spellings of displays
// (°C, kW), SenML (Cel), UCUM ([degF], L/min) and words (celsius).
package units

import (
	"fmt"
	"strings"
)

// Conversion converts a value x to Factor·x + Offset.
type Conversion struct{ Factor, Offset float64 }

// identity is the conversion between two spellings of the same unit.
var identity = Conversion{Factor: 1}

// Apply returns the converted value.
func (c Conversion) Apply(x float64) float64 {
	if c == identity {
		return x // returning x keeps the sign of zero
	}
	return float64(c.Factor*x) + c.Offset // the conversion prevents a fused operation, which rounds differently
}

// Between returns the conversion from one unit to another. Two equal texts are the same unit, even if it is unknown.
// The error names both units.
func Between(from, to string) (Conversion, error) {
	if normalized(from) == normalized(to) {
		return identity, nil
	}
	a, b := find(from), find(to)
	switch {
	case a == nil && b == nil:
		return Conversion{}, fmt.Errorf("%q and %q are different units, and both are unknown", from, to)
	case a == nil:
		return Conversion{}, fmt.Errorf("%q is an unknown unit and cannot be converted to %q", from, to)
	case b == nil:
		return Conversion{}, fmt.Errorf("%q cannot be converted to %q, which is an unknown unit", from, to)
	case a.quantity != b.quantity:
		return Conversion{}, fmt.Errorf("%q is a unit of %s, but %q is a unit of %s", from, a.quantity, to, b.quantity)
	case a == b:
		return identity, nil
	}
	return Conversion{a.factor / b.factor, (a.offset - b.offset) / b.factor}, nil
}

// unit is an entry of the table of units. A value x in this unit is factor·x + offset in the base unit of the same
// quantity.
type unit struct {
	quantity       string
	factor, offset float64
	names          string // spellings of the unit, separated by spaces
}

// table contains all units. The first unit of each quantity is its base unit.
var table = []unit{
	{"temperature", 1, 0, "K kelvin"},
	{"temperature", 1, 273.15, "°C C Cel degC celsius degreesCelsius degrees_celsius"},
	{"temperature", 5. / 9, 459.67 * 5 / 9, "°F F degF [degF] fahrenheit degreesFahrenheit degrees_fahrenheit"},

	{"pressure", 1, 0, "Pa pascal"},
	{"pressure", 100, 0, "hPa mbar millibar"},
	{"pressure", 1e3, 0, "kPa"},
	{"pressure", 1e6, 0, "MPa"},
	{"pressure", 1e5, 0, "bar"},
	{"pressure", 6894.757293168361, 0, "psi lbf/in2 [psi]"},
	{"pressure", 133.322387415, 0, "mmHg mm[Hg]"},
	{"pressure", 3386.388640341, 0, "inHg [in_i'Hg]"},
	{"pressure", 101325, 0, "atm"},

	{"power", 1, 0, "W watt watts"},
	{"power", 1e-3, 0, "mW"},
	{"power", 1e3, 0, "kW"},
	{"power", 1e6, 0, "MW"},
	{"power", 0.29307107017222, 0, "BTU/h Btu/h"},
	{"apparent power", 1, 0, "VA"},
	{"apparent power", 1e3, 0, "kVA"},
	{"apparent power", 1e6, 0, "MVA"},
	{"reactive power", 1, 0, "var"},
	{"reactive power", 1e3, 0, "kvar"},
	{"reactive power", 1e6, 0, "Mvar"},

	{"energy", 1, 0, "J joule"},
	{"energy", 1e3, 0, "kJ"},
	{"energy", 1e6, 0, "MJ"},
	{"energy", 1e9, 0, "GJ"},
	{"energy", 3600, 0, "Wh"},
	{"energy", 3.6e6, 0, "kWh"},
	{"energy", 3.6e9, 0, "MWh"},
	{"energy", 4184, 0, "kcal"},
	{"energy", 1055.05585262, 0, "BTU Btu"},

	{"length", 1, 0, "m metre meter"},
	{"length", 1e-6, 0, "µm um micron"},
	{"length", 1e-3, 0, "mm"},
	{"length", 1e-2, 0, "cm"},
	{"length", 1e3, 0, "km"},
	{"length", 0.0254, 0, "in inch [in_i]"},
	{"length", 0.3048, 0, "ft foot [ft_i]"},
	{"length", 1609.344, 0, "mi mile [mi_i]"},

	{"speed", 1, 0, "m/s"},
	{"speed", 1e-3, 0, "mm/s"},
	{"speed", 1e-3 / 3600, 0, "mm/h"},
	{"speed", 1 / 3.6, 0, "km/h kph kmh"},
	{"speed", 0.44704, 0, "mph mi/h"},
	{"speed", 0.0254, 0, "in/s"},
	{"speed", 0.0254 / 3600, 0, "in/h"},
	{"speed", 0.3048, 0, "ft/s"},
	{"speed", 1852. / 3600, 0, "kn kt knot knots"},

	{"acceleration", 1, 0, "m/s2 m/s^2"},
	{"acceleration", 1e-3, 0, "mm/s2 mm/s^2"},
	{"acceleration", 9.80665, 0, "g0 gn [g]"},

	{"mass", 1, 0, "kg"},
	{"mass", 1e-6, 0, "mg"},
	{"mass", 1e-3, 0, "g gram"},
	{"mass", 1e3, 0, "t tonne"},
	{"mass", 0.45359237, 0, "lb lbs [lb_av]"},
	{"mass", 0.028349523125, 0, "oz [oz_av]"},

	{"volume", 1, 0, "m3 m^3"},
	{"volume", 1e-3, 0, "L l litre liter"},
	{"volume", 1e-6, 0, "mL ml"},
	{"volume", 0.028316846592, 0, "ft3 ft^3 cf"},
	{"volume", 0.003785411784, 0, "gal [gal_us]"},

	{"volume flow", 1, 0, "m3/s m^3/s"},
	{"volume flow", 1. / 3600, 0, "m3/h m^3/h"},
	{"volume flow", 1e-3, 0, "L/s l/s"},
	{"volume flow", 1e-3 / 60, 0, "L/min l/min lpm"},
	{"volume flow", 1e-3 / 3600, 0, "L/h l/h"},
	{"volume flow", 0.003785411784 / 60, 0, "gal/min gpm"},
	{"volume flow", 0.028316846592 / 60, 0, "ft3/min ft^3/min cfm"},

	{"voltage", 1, 0, "V volt"},
	{"voltage", 1e-3, 0, "mV"},
	{"voltage", 1e3, 0, "kV"},
	{"electric current", 1, 0, "A amp ampere"},
	{"electric current", 1e-6, 0, "µA uA"},
	{"electric current", 1e-3, 0, "mA"},
	{"electric current", 1e3, 0, "kA"},
	{"electric charge", 1, 0, "Ah"},
	{"electric charge", 1e-3, 0, "mAh"},
	{"resistance", 1, 0, "Ω ohm Ohm"},
	{"resistance", 1e3, 0, "kΩ kohm kOhm"},
	{"resistance", 1e6, 0, "MΩ MOhm"},

	{"frequency", 1, 0, "Hz 1/s"},
	{"frequency", 1e3, 0, "kHz"},
	{"frequency", 1e6, 0, "MHz"},
	{"frequency", 1. / 60, 0, "rpm 1/min r/min"},

	{"time", 1, 0, "s sec second seconds"},
	{"time", 1e-6, 0, "µs us"},
	{"time", 1e-3, 0, "ms"},
	{"time", 60, 0, "min minute minutes"},
	{"time", 3600, 0, "h hour hours"},
	{"time", 86400, 0, "d day days"},

	{"ratio", 1, 0, "1 /"},
	{"ratio", 1e-2, 0, "% %RH percent"},
	{"ratio", 1e-3, 0, "‰"},
	{"ratio", 1e-6, 0, "ppm"},
	{"ratio", 1e-9, 0, "ppb"},

	{"mass concentration", 1, 0, "g/m3 g/m^3 mg/L mg/l"},
	{"mass concentration", 1e-3, 0, "mg/m3 mg/m^3"},
	{"mass concentration", 1e-6, 0, "µg/m3 µg/m^3 ug/m3 ug/m^3"},
	{"mass concentration", 1e3, 0, "kg/m3 kg/m^3"},

	{"illuminance", 1, 0, "lx lux"},
	{"illuminance", 1e3, 0, "klx"},
	{"irradiance", 1, 0, "W/m2 W/m^2"},
	{"irradiance", 1e3, 0, "kW/m2 kW/m^2"},
	{"angle", 1, 0, "rad"},
	{"angle", 0.017453292519943295, 0, "° deg degree degrees"},
	{"conductivity", 1, 0, "S/m"},
	{"conductivity", 0.1, 0, "mS/cm"},
	{"conductivity", 1e-4, 0, "µS/cm uS/cm"},
	{"force", 1, 0, "N newton"},
	{"force", 1e3, 0, "kN"},
	{"torque", 1, 0, "Nm N·m N.m"},
	{"sound level", 1, 0, "dB dBA dB(A)"},
}

// find returns the unit with the given spelling, or nil if the unit is unknown. Case is significant if several units
// differ only in case, such as mW and MW.
func find(text string) *unit {
	text = normalized(text)
	var folded *unit
	isAmbiguous := false
	for i := range table {
		u := &table[i]
		for name := range strings.FieldsSeq(u.names) {
			switch {
			case name == text:
				return u
			case strings.EqualFold(name, text):
				isAmbiguous = isAmbiguous || folded != nil && folded != u
				folded = u
			}
		}
	}
	if isAmbiguous {
		return nil
	}
	return folded
}

// spellingVariants replaces characters that are written in several ways.
var spellingVariants = strings.NewReplacer(" ", "", "\u00a0", "", "\u03bc", "µ", "\u2126", "Ω", "²", "2", "³", "3",
	"º", "°", "℃", "°C", "℉", "°F", "⋅", "·")

// normalized returns the text of a unit without spaces, and with one spelling for each character.
func normalized(text string) string { return spellingVariants.Replace(strings.TrimSpace(text)) }
