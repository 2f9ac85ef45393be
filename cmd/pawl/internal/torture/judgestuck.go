package torture

import "time"

// grace is how long a process has to go on after the last fault, at the least. In that
// time, or when it is told to end, whatever it waits for comes to an end.
const grace = time.Second

// stuck: whoever asks is answered, and when all faults are over, everybody goes on.
//
// Invariant: a process always waits for a lock, or holds one for a short time; and when it is told to
// end, which is after the last fault, all that it waits for ends. So it was granted something by then, or
// told that it is not. One that ended well had an answer to all that it asked.
func (j *judgement) stuck() {
	over := j.lastFault()
	for _, f := range j.lives {
		if f.quit != nil && f.quit.Err != "" {
			j.find("process", "", f.quit.At, []*Event{f.started, f.quit}, "%s ended with an error at %s: %s", who(f.process, f.life), j.when(f.quit.At), f.quit.Err)
		}
		if f.killed != nil || f.process == 0 {
			continue
		}
		from, to := over, j.end
		if f.started != nil {
			from = max(from, f.started.At)
		}
		if f.quit != nil {
			to = min(to, f.quit.At)
		}
		switch {
		case to-from < int64(grace):
			j.brief++
		case f.went <= from:
			j.find("stuck", "", to, []*Event{f.started, f.quit},
				"%s did not go on after the last fault, which was over at %s: from then to %s nothing was granted to it, and nothing refused.",
				who(f.process, f.life), j.when(over), j.when(to))
		}
	}
	if j.brief > 0 {
		j.note("whether all went on after the last fault was not judged of %d: they had less than %v for it", j.brief, grace)
	}
	for _, t := range j.tenures {
		if f := j.lifeOf(t); t.granted == nil && t.failed == nil && f.killed == nil && (f.quit == nil || f.quit.Err == "") {
			j.find("stuck", t.name, t.ask.At, []*Event{t.ask},
				"%s asked for %q at %s, and had no answer when all was over, at %s.", who(t.process, t.life), t.name, j.when(t.ask.At), j.when(j.end))
		}
	}
}

// lastFault is when the last fault was over.
func (j *judgement) lastFault() int64 {
	over := j.begin
	for i := range j.history {
		switch e := &j.history[i]; e.What {
		case Fault, Killed, Resumed:
			over = max(over, e.At, e.End)
		}
	}
	return over
}
