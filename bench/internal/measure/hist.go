// Package measure is the arithmetic of the bench: spans of time across
// processes, percentiles, medians, fairness.
package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// precision is the number of bits kept of a recorded value: it is off by less
// than 0.4 %.
const precision = 7

// Hist counts spans of time in buckets of constant relative width. Recording
// allocates nothing, and histograms of several processes add up.
type Hist struct {
	buckets [(64 - precision) << precision]uint32
	n       uint64
	max     int64
}

func bucket(v int64) int {
	if v < 1<<precision {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - precision - 1
	return shift<<precision + int(v>>shift)
}

// middle returns the value in the middle of a bucket.
func middle(b int) float64 {
	if b < 2<<precision {
		return float64(b)
	}
	shift := b>>precision - 1
	low := int64(b-shift<<precision) << shift
	return float64(low) + float64(int64(1)<<shift-1)/2
}

// Record counts one span; a negative one counts as zero.
func (h *Hist) Record(d time.Duration) {
	v := max(0, int64(d))
	h.buckets[bucket(v)]++
	h.n++
	h.max = max(h.max, v)
}

// Add counts in what o has counted.
func (h *Hist) Add(o *Hist) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// Count returns how many spans were recorded.
func (h *Hist) Count() uint64 { return h.n }

// Max returns the longest span.
func (h *Hist) Max() time.Duration { return time.Duration(h.max) }

// Micros returns the p-th quantile (0 to 1) in microseconds, NaN if nothing
// was recorded.
func (h *Hist) Micros(p float64) float64 {
	if h.n == 0 {
		return math.NaN()
	}
	rank := uint64(math.Ceil(p * float64(h.n)))
	var seen uint64
	for i, n := range h.buckets {
		seen += uint64(n)
		if n > 0 && seen >= rank {
			return middle(i) / 1e3
		}
	}
	return float64(h.max) / 1e3
}

// sparse is a histogram on its way to another process.
type sparse struct {
	Buckets map[int]uint32
	Max     int64
}

// MarshalJSON implements json.Marshaler.
func (h *Hist) MarshalJSON() ([]byte, error) {
	s := sparse{make(map[int]uint32), h.max}
	for i, n := range h.buckets {
		if n > 0 {
			s.Buckets[i] = n
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Hist) UnmarshalJSON(b []byte) error {
	var s sparse
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*h = Hist{max: s.Max}
	for i, n := range s.Buckets {
		if i < 0 || i >= len(h.buckets) {
			return fmt.Errorf("histogram: there is no bucket %d", i)
		}
		h.buckets[i] = n
		h.n += uint64(n)
	}
	return nil
}
