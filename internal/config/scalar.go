package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// scalar is a single value in its written form.
type scalar struct {
	text  string
	style scalarStyle
}

// scalarStyle is the notation of a value, which determines its type in YAML.
type scalarStyle int

const (
	plainStyle   scalarStyle = iota // YAML without quotes: a number, a bool or a word
	quotedStyle                     // YAML in quotes or as a block: always text
	untypedStyle                    // from the environment or the command line, which have no quotes: any type
)

func (s scalar) displayText() string {
	switch {
	case s.style == plainStyle && s.isNumberOrBool():
		return s.text
	case s.style == quotedStyle && s.isNumberOrBool():
		return "the text " + quoteShortened(s.text)
	default:
		return quoteShortened(s.text)
	}
}

// isNumberOrBool reports whether YAML reads the plain text as a number or a bool.
func (s scalar) isNumberOrBool() bool {
	switch strings.TrimLeft(strings.ToLower(s.text), "+-") {
	case "true", "false", ".inf", ".nan":
		return true
	}
	if !strings.ContainsAny(s.text, "0123456789") {
		return false
	}
	digits := strings.ReplaceAll(s.text, "_", "")
	_, floatErr := strconv.ParseFloat(digits, 64)
	_, intErr := strconv.ParseInt(digits, 0, 64)
	return floatErr == nil || intErr == nil || errors.Is(floatErr, strconv.ErrRange) ||
		errors.Is(intErr, strconv.ErrRange)
}

// parseInto parses s into dst. If it fails, it returns the problem and a hint. The problem and the hint never contain a
// secret.
func (s scalar) parseInto(dst reflect.Value) (problem, hint string) {
	problem = "want " + describeExpectedForm(dst.Type()) + ", got " + s.displayText()
	switch dst.Type() {
	case secretType:
		return s.parseSecretInto(dst)
	case durationType:
		d, err := time.ParseDuration(s.text)
		if err != nil || s.isNumberOrBool() {
			return problem, s.unitHint("s", "m", "valid units are ms, s, m and h")
		}
		dst.SetInt(int64(d))
		return "", ""
	case byteSizeType:
		size, err := spec.ParseByteSize(s.text)
		if err != nil {
			return problem, s.unitHint("MB", "MiB", "valid units are B, kB, MB, GB, TB and KiB, MiB, GiB, TiB")
		}
		dst.SetInt(int64(size))
		return "", ""
	}
	if dst.Kind() == reflect.String {
		if word, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
			if err := word.UnmarshalText([]byte(s.text)); err != nil {
				return err.Error(), ""
			}
			return "", ""
		}
		if s.style == plainStyle && s.isNumberOrBool() {
			return problem, "put the value in quotes: " + quoteShortened(s.text)
		}
		dst.SetString(s.text)
		return "", ""
	}
	if s.style == quotedStyle {
		return problem, "remove the quotes"
	}
	if !s.parsePlainInto(dst) {
		return problem, ""
	}
	return "", ""
}

func (s scalar) parseSecretInto(dst reflect.Value) (problem, hint string) {
	switch {
	case s.style == plainStyle && s.isNumberOrBool():
		return "want text, got a number or truth value", "put the value in quotes"
	case s.text == redacted:
		return "is " + quoteShortened(redacted) + ", the placeholder that config show prints for a secret",
			"replace the placeholder with the secret"
	}
	dst.SetString(s.text)
	return "", ""
}

// unitHint returns a hint for an invalid quantity. The usual problem is a missing unit.
func (s scalar) unitHint(unit, other, units string) string {
	if s.text != "" && strings.Trim(s.text, "0123456789") == "" {
		return fmt.Sprintf("add a unit: %s%s or %s%s", s.text, unit, s.text, other)
	}
	return units
}

// parsePlainInto parses bools and decimal numbers. It rejects leading zeros, since some programs read 010 as eight and
// others as ten.
func (s scalar) parsePlainInto(dst reflect.Value) bool {
	digits := strings.TrimLeft(s.text, "+-")
	leadingZero := len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'
	switch {
	case dst.Kind() == reflect.Bool:
		text := strings.ToLower(s.text)
		dst.SetBool(text == "true")
		return text == "true" || text == "false"
	case leadingZero:
		return false
	case dst.CanInt():
		v, err := strconv.ParseInt(s.text, 10, dst.Type().Bits())
		dst.SetInt(v)
		return err == nil
	case dst.CanUint():
		v, err := strconv.ParseUint(strings.TrimPrefix(s.text, "+"), 10, dst.Type().Bits())
		dst.SetUint(v)
		return err == nil
	default:
		v, err := strconv.ParseFloat(s.text, dst.Type().Bits())
		dst.SetFloat(v)
		return err == nil && strings.Trim(s.text, "0123456789+-.eE") == "" // reject Inf, NaN and hexadecimal numbers
	}
}

// describeExpectedForm describes how a value of type t is written, for error messages. It returns "" if t is not a
// scalar type.
func describeExpectedForm(t reflect.Type) string {
	switch t {
	case durationType:
		return `a duration such as "30s" or "1h30m"`
	case byteSizeType:
		return `a size such as "40MB" or "64KiB"`
	}
	switch k := t.Kind(); {
	case k == reflect.String:
		return "text"
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a finite number"
	case k >= reflect.Uint && k <= reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case k == reflect.Int || k == reflect.Int64: // an int has 32 bits on some devices, which is enough for all settings
		return "a whole number"
	case k >= reflect.Int8 && k <= reflect.Int32:
		most := int64(math.MaxInt64) >> (64 - t.Bits())
		return fmt.Sprintf("a whole number from %d to %d", -most-1, most)
	default:
		return ""
	}
}
