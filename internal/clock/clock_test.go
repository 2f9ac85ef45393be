package clock

import (
	"testing"
	"time"
)

func TestBoottime(t *testing.T) {
	a, ok := Boottime()
	if !ok {
		t.Skip("this system has no such clock")
	}
	start := time.Now()
	time.Sleep(20 * time.Millisecond)
	b, _ := Boottime()
	if span, want := b-a, time.Since(start); span < 19*time.Millisecond || span > want+time.Second {
		t.Errorf("the clock went on by %v while %v passed", span, want)
	}
}

func TestOpen(t *testing.T) {
	if _, ok := Boottime(); !ok {
		t.Skip("this system has no such clock")
	}
	m, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open()
	if err != nil || again != m || m.Boot == "" {
		t.Errorf("Open returned %+v, then %+v, %v", m, again, err)
	}
	if m.Now() <= 0 {
		t.Errorf("Now is %v", m.Now())
	}
}
