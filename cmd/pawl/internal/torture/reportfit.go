package torture

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Around a finding, and around a fault of the same process, everything is shown even when the page
// would be too large with all.
const (
	aroundFinding = 2 * time.Second
	aroundFault   = 200 * time.Millisecond
)

// fit chooses the bars that are kept so that they take no more than limit bytes: what
// findings show first, then their surroundings, those of faults, and an even sample of the rest.
func (s *story) fit(p *page, base []int64, findings []Finding, limit int) (kept func(int) bool, left string, err error) {
	all := 0
	rank := make([]uint8, len(s.bars))
	near := s.near(findings)
	var ranks [4]int
	before := int64(0)
	for i, b := range s.bars {
		// The differences between starts are as in the whole list; with gaps they're longer by
		// a digit or two, for which the slack is.
		n := 1 + digits(p.micro(b.grant)-before)
		before = p.micro(b.grant)
		for _, v := range p.numbers(b, base) {
			n += 1 + digits(v)
		}
		rank[i] = near(b)
		ranks[rank[i]] += n
		all += n
	}
	rest, err := json.Marshal(p)
	if err != nil {
		return nil, "", err
	}
	if limit -= len(rest); all <= limit {
		return func(int) bool { return true }, "", nil
	}
	keep := make([]bool, len(s.bars))
	room := max(0, limit-limit/10)
	shown := 0
	shares := [4]float64{}
	for r, bytes := range ranks {
		if bytes == 0 {
			shares[r] = -1 // not worth a word
			continue
		}
		shares[r] = min(1, float64(room)/float64(bytes))
		room -= int(shares[r] * float64(bytes))
	}
	var due [4]float64
	for i := range s.bars {
		r := rank[i]
		if due[r] += shares[r]; due[r] >= 1 {
			due[r]--
			keep[i] = true
			shown++
		}
	}
	return func(i int) bool { return keep[i] }, said(shares, shown, len(s.bars)), nil
}

func said(shares [4]float64, shown, all int) string {
	var parts []string
	for r, what := range []string{
		"what the findings show", "what was going on up to " + aroundFinding.String() + " around a finding",
		"what a process did up to " + aroundFault.String() + " around a fault that hit it", "the rest",
	} {
		switch {
		case shares[r] < 0:
		case shares[r] >= 1:
			parts = append(parts, "all of "+what)
		case shares[r] > 0:
			parts = append(parts, fmt.Sprintf("one in %.3g of %s", 1/shares[r], what))
		default:
			parts = append(parts, "nothing of "+what)
		}
	}
	return fmt.Sprintf("The time line has %s of %s bars, or the page would be too large: %s. The overview and the counts are of everything.",
		count(int64(shown)), count(int64(all)), strings.Join(parts, "; "))
}

// near tells how close bars are to what matters: 0 is in a finding, 3 is far from everything.
func (s *story) near(findings []Finding) func(*bar) uint8 {
	found := []span{}
	for _, f := range findings[:min(len(findings), maxFindings)] {
		from, to := f.span()
		found = append(found, span{from: from - int64(aroundFinding), to: to + int64(aroundFinding)})
	}
	found = union(found)
	faults := make([][]span, len(s.processes))
	for _, f := range s.faults {
		f.from -= int64(aroundFault)
		f.to += int64(aroundFault)
		for lane := range faults {
			if f.lane == lane || f.lane < 0 {
				faults[lane] = append(faults[lane], f)
			}
		}
	}
	for lane := range faults {
		faults[lane] = union(faults[lane])
	}
	return func(b *bar) uint8 {
		switch {
		case b.finding != 0:
			return 0
		case overlaps(found, b):
			return 1
		case b.ended == endLost || b.ended == endHanded || b.lane >= 0 && overlaps(faults[b.lane], b):
			return 2
		}
		return 3
	}
}

// union makes spans that don't touch each other, in order.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return int(min(1, max(-1, a.from-b.from))) })
	out := spans[:0]
	for _, sp := range spans {
		if n := len(out); n > 0 && sp.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, sp.to)
			continue
		}
		out = append(out, sp)
	}
	return out
}

func overlaps(spans []span, b *bar) bool {
	i, _ := slices.BinarySearchFunc(spans, b.grant, func(sp span, at int64) int {
		if sp.to < at {
			return -1
		}
		return 1
	})
	return i < len(spans) && spans[i].from <= b.end
}

// digits is how long n is in decimal.
func digits(n int64) int {
	d := 1
	if n < 0 {
		d, n = 2, -n
	}
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}
