package measure

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestHistQuantiles(t *testing.T) {
	var whole, a, b Hist
	var values []float64
	for i := range 20000 {
		d := time.Duration(math.Exp(rand.Float64() * 30)) // 1 ns to 3 h
		values = append(values, float64(d)/1e3)
		whole.Record(d)
		if i%3 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	slices.Sort(values)
	a.Add(&b)
	text, err := json.Marshal(&a)
	if err != nil {
		t.Fatal(err)
	}
	var sent Hist
	if err := json.Unmarshal(text, &sent); err != nil {
		t.Fatal(err)
	}
	if sent != whole {
		t.Error("parts added and sent differ from the whole")
	}
	for _, p := range []float64{0.001, 0.1, 0.5, 0.99, 1} {
		want := values[int(math.Ceil(p*float64(len(values))))-1]
		if got := sent.Micros(p); math.Abs(got-want) > 0.004*want {
			t.Errorf("quantile %g = %g µs, want %g", p, got, want)
		}
	}
	if got := float64(sent.Max()) / 1e3; got != values[len(values)-1] {
		t.Errorf("max = %g, want %g", got, values[len(values)-1])
	}
	if sent.Count() != 20000 {
		t.Errorf("count = %d", sent.Count())
	}
}

func TestHistEdges(t *testing.T) {
	var h Hist
	if !math.IsNaN(h.Micros(0.5)) {
		t.Error("a quantile of nothing")
	}
	h.Record(-5)
	h.Record(math.MaxInt64)
	if h.Micros(0.5) != 0 {
		t.Errorf("a negative span counts as %g", h.Micros(0.5))
	}
	if err := json.Unmarshal([]byte(`{"Buckets":{"999999":1}}`), &h); err == nil {
		t.Error("a bucket that does not exist was taken")
	}
}

func TestMedian(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{3, 1, 2}, 2},
		{[]float64{4, 1, 2, 3}, 2.5},
		{[]float64{nan, 7, nan}, 7},
	} {
		if got := Median(c.xs); got != c.want {
			t.Errorf("Median(%v) = %g, want %g", c.xs, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("a median of nothing")
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []int64
		want   float64
	}{
		{[]int64{5, 5, 5, 5}, 1},
		{[]int64{8, 0, 0, 0}, 0.25},
		{[]int64{1, 3}, 0.8},
	} {
		if got := Jain(c.shares); got != c.want {
			t.Errorf("Jain(%v) = %g, want %g", c.shares, got, c.want)
		}
	}
}

func TestClockIsTheMachines(t *testing.T) {
	c := NewClock()
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before); err != nil {
		t.Fatal(err)
	}
	now := c.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &after); err != nil {
		t.Fatal(err)
	}
	const slack = int64(20 * time.Microsecond) // how well the offset was found
	if now < before.Nano()-slack || now > after.Nano()+slack {
		t.Errorf("Now() = %d, the machine's clock went from %d to %d", now, before.Nano(), after.Nano())
	}
}
