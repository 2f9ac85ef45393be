package handle

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

func TestParse(t *testing.T) {
	for _, text := range []string{
		"ABCDEFGHIJ.17.-.KLMNOPQRST.15000@deploy/prod", "ABCDEFGHIJ.17.r.KLMNOPQRST.100@a@b.c", "ABCDEFGHIJ.17.n2.KLMNOPQRST.604800000@n 1",
		"ABCDEFGHIJ.17.-@x",
	} {
		if h, err := Parse(text); err != nil || h.String() != text {
			t.Errorf("%s: %v, %v", text, h, err)
		}
	}
	h, err := Parse("ABCDEFGHIJ.17@x")
	if err != nil || h.Owned() || h.Token != 17 || h.Units != none {
		t.Errorf("%+v, %v", h, err)
	}
	h, err = Parse("ABCDEFGHIJ.17.r.KLMNOPQRST.15000@x")
	if err != nil || !h.Owned() || *h != (Handle{"x", "ABCDEFGHIJ", 17, "r", "KLMNOPQRST", 15 * time.Second}) {
		t.Errorf("%+v, %v", h, err)
	}
	for _, text := range []string{
		"", "x", "@x", "ABCDEFGHIJ@x", "ABCDEFGHIJ.0@x", "ABCDEFGHIJ.-1@x", "ABCDEFGHIJ.17", "ABCDEFGHIJ.17@", "ABCDEFGHIJ.17@a{b}", "short.17@x",
		"ABCDEFGHIJ.17.q@x", "ABCDEFGHIJ.17.n@x", "ABCDEFGHIJ.17.n-1@x", "ABCDEFGHIJ.17.-.KLMNOPQRST@x", "ABCDEFGHIJ.17.-.k.1000@x",
		"ABCDEFGHIJ.17.-.KLMNOPQRST.99@x", "ABCDEFGHIJ.17.-.KLMNOPQRST.604800001@x", "ABCDEFGHIJ.17.-.KLMNOPQRST.9223372036854775807@x",
		"ABCDEFGHIJ.17.-.KLMNOPQRST.1000.1@x",
	} {
		if h, err := Parse(text); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v, %v", text, h, err)
		}
	}
}
