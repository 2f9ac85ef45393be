package torture

import "testing"

// One claim that is handed around in a circle is judged, and not gone round for ever.
func TestAdoptedInACircle(t *testing.T) {
	var h []Event
	adopt := func(at int64, process int, handle, next string) {
		e := Event{Process: process, Life: 1, Op: 1, Name: "n", Kind: "semaphore", Units: 1, Limit: 3, Token: at}
		for i, what := range []What{Ask, Granted, Look, Release, Released} {
			e.At, e.What = at+int64(i), what
			e.Way, e.Handle = "adopt", handle
			if what == Release || what == Released {
				e.Way, e.Handle = "handover", next
			}
			h = append(h, e)
		}
	}
	adopt(10, 1, "b", "a")
	adopt(20, 2, "a", "b")
	if v := Judge(h); len(v.Findings) == 0 {
		t.Error("nothing is found")
	}
}
