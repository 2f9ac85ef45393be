package torture

import (
	"slices"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

func storyOf(processes int, history ...Event) *story {
	return tell(&Result{Options: Options{Processes: processes}, Begin: 1, End: 1000 * ms, History: history})
}

func TestStoryBelief(t *testing.T) {
	op := func(at int64, what What, more ...func(*Event)) Event {
		e := Event{At: at * ms, Process: 1, Life: 1, Op: 5, What: what}
		for _, f := range more {
			f(&e)
		}
		return e
	}
	asked := func(e *Event) { e.Name, e.Kind, e.Units, e.Limit = "a", "mutex", 1, 1 }
	token := func(e *Event) { e.Token, e.Until = 9, 200*ms }
	start := []Event{{At: ms, Process: 1, Life: 1, What: Started}, op(10, Ask, asked), op(20, Granted, token), op(50, Look)}
	tests := map[string]struct {
		more      []Event
		look, end int64
		ended     int
	}{
		"released": {[]Event{op(60, Release), op(70, Released)}, 50, 60, endReleased},
		"handed over": {
			[]Event{op(60, Release), op(70, Released, func(e *Event) { e.Handle = "c" })}, 50, 60, endHanded,
		},
		"told":         {[]Event{op(80, Told)}, 50, 80, endLost},
		"late release": {[]Event{op(80, Told), op(90, Release), op(95, Released)}, 50, 80, endLost},
		"killed":       {[]Event{{At: 90 * ms, Process: 1, Life: 1, What: Killed}}, 50, 90, endKilled},
		"ended":        {[]Event{{At: 90 * ms, Process: 1, Life: 1, What: Ended}}, 50, 90, endKilled},
		"another died": {[]Event{{At: 90 * ms, Process: 2, Life: 1, What: Killed}}, 50, 1000, endOpen},
		"open":         {nil, 50, 1000, endOpen},
		"looked again": {[]Event{op(95, Look), op(99, Told)}, 95, 99, endLost},
	}
	for name, test := range tests {
		s := storyOf(2, append(slices.Clone(start), test.more...)...)
		if len(s.bars) != 1 {
			t.Errorf("%s: %d bars", name, len(s.bars))
			continue
		}
		b := s.bars[0]
		if b.ask != 10*ms || b.grant != 20*ms || b.look != test.look*ms || b.end != test.end*ms || b.ended != test.ended || b.token != 9 {
			t.Errorf("%s: %+v", name, *b)
		}
	}
}

func TestStoryNotGranted(t *testing.T) {
	s := storyOf(1,
		Event{At: 10 * ms, Process: 1, Op: 1, What: Ask, Name: "a"}, Event{At: 20 * ms, Process: 1, Op: 1, What: Failed, Err: "no"},
		Event{At: 30 * ms, Process: 1, Op: 2, What: Ask, Name: "a"}, Event{At: 40 * ms, Process: 1, What: Killed},
	)
	if len(s.bars) != 2 || s.bars[0].ended != endFailed || s.bars[0].err != "no" || s.bars[0].granted || s.bars[1].ended != endWaiting {
		t.Errorf("%+v %+v", s.bars[0], s.bars[1])
	}
}

func TestStoryOfSeveralNames(t *testing.T) {
	s := storyOf(1,
		Event{At: 10 * ms, Process: 1, Op: 1, What: Ask, Name: "a"}, Event{At: 10 * ms, Process: 1, Op: 1, What: Ask, Name: "b"},
		Event{At: 20 * ms, Process: 1, Op: 1, What: Granted, Name: "a", Token: 1}, Event{At: 20 * ms, Process: 1, Op: 1, What: Granted, Name: "b", Token: 2},
		Event{At: 30 * ms, Process: 1, Op: 1, What: Told, Name: "a"}, Event{At: 40 * ms, Process: 1, Op: 1, What: Look},
		Event{At: 50 * ms, Process: 1, Op: 1, What: Release}, Event{At: 60 * ms, Process: 1, Op: 1, What: Released},
	)
	if len(s.bars) != 2 || s.bars[0].end != 30*ms || s.bars[0].token != 1 || s.bars[1].end != 50*ms || s.bars[1].token != 2 || s.bars[1].look != 40*ms {
		t.Errorf("%+v %+v", s.bars[0], s.bars[1])
	}
	if s.bars[0].track == s.bars[1].track {
		t.Error("both are in one track")
	}
}

func TestStoryChangesHandsOverAndFaults(t *testing.T) {
	s := storyOf(2,
		Event{At: ms, Process: 1, Life: 1, What: Started},
		Event{At: 10 * ms, Process: 1, Life: 1, Op: 1, What: Ask, Name: "a", Kind: "rw", Units: 64, Limit: 64},
		Event{At: 20 * ms, Process: 1, Life: 1, Op: 1, What: Granted, Token: 1},
		Event{At: 30 * ms, Process: 1, Life: 1, Op: 1, What: Changing, Units: 1, Way: "downgrade"},
		Event{At: 32 * ms, Process: 1, Life: 1, Op: 1, What: Changed, Units: 1, Token: 2, Way: "downgrade"},
		Event{At: 40 * ms, Process: 1, Life: 1, Op: 1, What: Release, Way: "handover"},
		Event{At: 41 * ms, Process: 1, Life: 1, Op: 1, What: Released, Handle: "c"},
		Event{At: 45 * ms, Process: 2, Life: 1, Op: 1, What: Ask, Name: "a", Kind: "rw", Way: "adopt", Handle: "c"},
		Event{At: 46 * ms, Process: 2, Life: 1, Op: 1, What: Granted, Token: 2},
		Event{At: 47 * ms, Process: 2, Life: 1, Op: 2, What: SetLimit, Name: "s", Limit: 3},
		Event{At: 47 * ms, End: 49 * ms, Process: 2, Life: 1, Op: 2, What: SetLimit, Name: "s", Limit: 3},
		Event{At: 50 * ms, Process: 2, What: Paused}, Event{At: 70 * ms, Process: 2, What: Resumed},
		Event{At: 71 * ms, Process: 2, What: Paused}, Event{At: 75 * ms, Process: 2, What: Killed},
		Event{At: 76 * ms, End: 90 * ms, Process: 1, What: Fault, Fault: "slow", Note: "n"},
		Event{At: 80 * ms, Process: 0, End: 90 * ms, What: Fault, Fault: "server"},
		Event{At: 99 * ms, Process: 2, Life: 2, What: Started},
	)
	if len(s.bars) != 3 || s.bars[0].ended != endChanged || s.bars[0].units != 64 || s.bars[0].end != 30*ms || s.bars[0].token != 1 ||
		s.bars[1].units != 1 || s.bars[1].token != 2 || s.bars[1].grant != 30*ms || s.bars[1].ended != endHanded || s.bars[0].track != s.bars[1].track {
		t.Errorf("%+v %+v", s.bars[0], s.bars[1])
	}
	if len(s.links) != 1 || s.links[0].from != s.bars[1] || s.links[0].to != s.bars[2] {
		t.Errorf("links: %+v", s.links)
	}
	if want := []span{{1, 47 * ms, 49 * ms, "limit", "s to 3"}}; !slices.Equal(s.marks, want) {
		t.Errorf("marks: %+v", s.marks)
	}
	want := []span{
		{1, 50 * ms, 70 * ms, "pause", ""}, {1, 71 * ms, 75 * ms, "pause", ""}, {1, 75 * ms, 75 * ms, "kill", ""},
		{0, 76 * ms, 90 * ms, "slow", "n"}, {-1, 80 * ms, 90 * ms, "server", ""},
	}
	if !slices.Equal(s.faults, want) {
		t.Errorf("faults: %+v", s.faults)
	}
	if want := []span{{lane: 1, from: 75 * ms, to: 99 * ms}}; !slices.Equal(s.gone, want) {
		t.Errorf("gone: %+v", s.gone)
	}
}

// Bars of a track overlap only where there are more at once than tracks.
func TestStoryTracks(t *testing.T) {
	for _, workers := range []int{1, 4, maxTracks} {
		s := tell(made(3, workers, 3000, 20*time.Second))
		before := &bar{lane: -1}
		for _, b := range s.bars {
			if b.lane == before.lane && b.track == before.track && b.grant < before.end {
				t.Fatalf("%d workers: %+v overlaps %+v", workers, b, before)
			}
			before = b
		}
		if workers == 1 && slices.Max(s.tracks) != 1 {
			t.Errorf("tracks of one worker: %v", s.tracks)
		}
	}
}
