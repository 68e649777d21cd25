package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes. As text it has a unit, such as "40MB" (powers of 1000) or "64KiB" (powers of 1024).
type ByteSize int64

// byteSizeUnits contains the units in the order in which String tries them.
var byteSizeUnits = []struct {
	name string
	size ByteSize
}{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
}

// String formats the size in the largest unit in which it is a whole number. ParseByteSize can parse the result.
func (s ByteSize) String() string {
	for _, u := range byteSizeUnits {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return "0B"
}

// ParseByteSize parses a whole number with a unit. A number without a unit is an error, since it could mean bytes,
// kilobytes or megabytes.
func ParseByteSize(text string) (ByteSize, error) {
	for _, u := range byteSizeUnits {
		number, ok := cutSuffixFold(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(number, " "), 10, 63)
		if err != nil {
			return 0, err
		}
		if n > math.MaxInt64/uint64(u.size) {
			return 0, fmt.Errorf("byte size %s is too large", text)
		}
		return ByteSize(n) * u.size, nil
	}
	return 0, fmt.Errorf("byte size %s has no unit: add a unit such as kB, MB or GB", text)
}

// cutSuffixFold is like strings.CutSuffix, but it ignores case, since KB, kb and kB are all common.
func cutSuffixFold(s, suffix string) (before string, found bool) {
	cut := len(s) - len(suffix)
	if cut < 0 || !strings.EqualFold(s[cut:], suffix) {
		return s, false
	}
	return s[:cut], true
}
