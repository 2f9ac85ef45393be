package torture

import (
	"cmp"
	"math"
	"slices"
)

// maxTracks is how many bars of a process are drawn above each other at most.
const maxTracks = 12

// stack gives each bar a track of its lane in which it overlaps no other, where there is one.
func (s *story) stack() {
	slices.SortStableFunc(s.bars, func(a, b *bar) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.grant, b.grant))
	})
	s.tracks = make([]int, len(s.processes))
	lane, free := -1, []int64(nil) // since when a track is
	for _, b := range s.bars {
		if b.lane != lane {
			lane, free = b.lane, free[:0]
		}
		b.track = pick(&free, b)
		free[b.track] = max(free[b.track], b.end)
		s.tracks[lane] = len(free)
	}
	slices.SortStableFunc(s.bars, func(a, b *bar) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.track, b.track))
	})
}

// pick prefers a track that was free while b waited, then one that is free when it was
// granted, then a new one.
func pick(free *[]int64, b *bar) int {
	best, least := 0, int64(math.MaxInt64)
	granted := -1
	for i, since := range *free {
		if since <= b.ask {
			return i
		}
		if since <= b.grant && granted < 0 {
			granted = i
		}
		if since < least {
			best, least = i, since
		}
	}
	if granted >= 0 && (!b.granted || len(*free) >= 4) {
		return granted
	}
	if len(*free) < maxTracks {
		*free = append(*free, b.ask)
		return len(*free) - 1
	}
	return best
}

// point marks the bars that findings show.
func (s *story) point(findings []Finding) {
	shown := map[opKey]int{}
	for i, f := range findings[:min(len(findings), maxFindings)] {
		for _, e := range f.Events {
			key := opKey{e.Process, e.Life, e.Op}
			if _, ok := shown[key]; !ok && e.Op != 0 {
				shown[key] = i + 1
			}
		}
	}
	for _, b := range s.bars {
		if b.lane >= 0 {
			b.finding = shown[opKey{s.processes[b.lane], b.life, b.op}]
		}
	}
}
