package torture

// adoption: what was handed over is adopted once, by somebody who gets a greater token, and
// nothing is adopted that was not handed over.
//
// Invariant: a handle has the token that was handed over, and an adoption draws
// a greater one in the same step. So a second adoption speaks of a token that is over,
// whatever it waited for.
func (j *judgement) adoption() {
	adopter := make(map[string]*tenure)
	for _, t := range j.tenures {
		if t.way != "adopt" || t.granted == nil || t.spoiled {
			continue
		}
		handle := t.ask.Handle
		from := j.handed[handle]
		if from == nil {
			j.find("adoption", t.name, t.granted.At, t.events(),
				"%s, adopted claim %s of %q at %s, which nobody had handed over.", t.who(), handle, t.name, j.when(t.granted.At))
			continue
		}
		if first := adopter[handle]; first != nil {
			j.find("adoption", t.name, t.granted.At, append(append(first.events(), t.events()...), from.released),
				"Two adopted claim %s of %q, which %s, handed over at %s: %s, at %s, and %s, at %s.",
				handle, t.name, from.who(), j.when(from.released.At), first.who(), j.when(first.granted.At), t.who(), j.when(t.granted.At))
			continue
		}
		adopter[handle] = t
		if t.granted.Token <= from.token() {
			j.find("adoption", t.name, t.granted.At, append(t.events(), from.granted, from.released),
				"%s, adopted claim %s of %q at %s from %s: its token is not greater.", t.who(), handle, t.name, j.when(t.granted.At), from.who())
		}
		if from.release != nil && t.granted.At < from.release.At {
			j.find("adoption", t.name, t.granted.At, append(t.events(), from.release, from.released),
				"%s, adopted claim %s of %q at %s, before %s, began to hand it over at %s.",
				t.who(), handle, t.name, j.when(t.granted.At), from.who(), j.when(from.release.At))
		}
	}
}
