package clock

import (
	"testing"
	"time"
)

func TestParseShift(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		bad  bool
	}{
		{in: "monotonic           0         0\nboottime            0         0\n"},
		{in: "monotonic 5 0\nboottime 3600 500\n", want: time.Hour + 500},
		{in: "boottime -10 7\n", want: -10*time.Second + 7},
		{in: ""},
		{in: "boottime x 0\n", bad: true},
	} {
		got, err := parseShift(c.in)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("parseShift(%q) = %v, %v", c.in, got, err)
		}
	}
}
