package figures

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Unit is the unit of a figure.
type Unit string

// The units.
const (
	Count   Unit = "count"
	Seconds Unit = "seconds"
	Bytes   Unit = "bytes"
	// Losses is a count of failures: of several rounds the worst one counts.
	Losses Unit = "losses"
	// Exponent is that of a power law.
	Exponent Unit = "exponent"
)

// Format returns a value as the documentation prints it.
func (u Unit) Format(value float64) string {
	size := math.Abs(value)
	switch {
	case math.IsNaN(value):
		return "–"
	case u == Exponent:
		return fmt.Sprintf("%.2f", value)
	case u == Seconds && size < 1:
		return digits(value)
	case u == Seconds:
		return fmt.Sprintf("%.2f s", value)
	case u == Bytes && size < 1e3:
		return fmt.Sprintf("%.0f B", value)
	case u == Bytes && size < 1e6:
		return fmt.Sprintf("%.1f KB", value/1e3)
	case u == Bytes && size < 1e9:
		return fmt.Sprintf("%.0f MB", value/1e6)
	case u == Bytes:
		return fmt.Sprintf("%.2f GB", value/1e9)
	case value == math.Trunc(value) && value >= 0 && value < 1e15:
		return Number(int(value))
	}
	return fmt.Sprintf("%.6g", value)
}

// digits formats a time below a second with three significant digits.
func digits(seconds float64) string {
	switch d := time.Duration(math.Abs(seconds) * 1e9); {
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	case d >= time.Microsecond:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	}
	return fmt.Sprintf("%.3g ns", seconds*1e9)
}

// FormatRatio returns a ratio as the documentation prints it.
func FormatRatio(ratio float64) string {
	switch {
	case math.IsNaN(ratio) || math.IsInf(ratio, 0):
		return "–"
	case ratio > 0 && ratio < 0.001:
		return "< 0.001×"
	}
	return fmt.Sprintf("%.3g×", ratio)
}

// Number returns a count as the documentation prints it, such as 10,000.
func Number(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", Number(n/1000), n%1000)
}
