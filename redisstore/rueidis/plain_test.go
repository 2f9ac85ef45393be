package rueidis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore/plain"
)

func TestPlainOptions(t *testing.T) {
	for raw, want := range map[string]struct {
		rest string
		o    plain.Options
	}{
		"redis://h":                    {"redis://h", plain.Options{}},
		"redis://u:p@h/3?recipe=plain": {"redis://u:p@h/3", plain.Options{}},
		"unix:///s?db=3&recipe=plain&prefix=a%2Fb&marks=true&max_pause=20ms": {
			"unix:///s?db=3", plain.Options{Prefix: "a/b", Marks: true, MaxPause: 20 * time.Millisecond},
		},
	} {
		rest, o, err := plainOptions(raw, nil)
		if err != nil || rest != want.rest || *o != want.o {
			t.Errorf("%s: %s, %+v, %v", raw, rest, o, err)
		}
	}
	for raw, says := range map[string]string{
		"redis://:secret@h?recipe=redlock":    `recipe="redlock": there is plain`,
		"redis://:secret@h?marks=2":           `marks="2": it is true or false`,
		"redis://:secret@h?max_pause=x":       `max_pause="x": it is a time`,
		"redis://:secret@h?max_pause=1h":      `MaxPause 1h0m0s: allowed are`,
		"redis://:secret@h?prefix=a&prefix=b": "2 times",
		"redis://:secret@h?prefix={":          "braces",
		"redis://:secret@h?other=1":           `"other"`,
		"redis://:secret@h?recipe=%zz":        "parameters",
	} {
		_, err := OpenPlain(raw, nil)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", raw, err, says)
		}
	}
	if _, err := OpenPlain("redis://h?prefix=a", &plain.Options{Prefix: "b"}); err == nil || !strings.Contains(err.Error(), "too") {
		t.Errorf("a prefix in both: %v", err)
	}
	s, err := OpenPlain("redis://192.0.2.1:1?recipe=plain", nil) // nobody is asked
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
