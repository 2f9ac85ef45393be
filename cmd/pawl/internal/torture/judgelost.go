package torture

import (
	"regexp"
	"strings"
)

// lost: a lease lasts until the deadline that it had, unless it is given up or the name
// is freed by force.
//
// Invariant: a deadline that the lease has told is one that the store keeps: it is earlier than that of the
// claim. So who was told before it that the lease is over, by a look or by Unlock that was over by then, lost it
// to nothing that may be: another's Leave, Adopt or expiry. That a server forgot is not the
// judge's: what it may forget when it is hurt depends on how it is set up. Sets are left out: they end with the first
// lease of theirs that does.
//
// Nor is a lease lost by an error about another name, which was made unreadable.
func (j *judgement) lost(l *lock) {
	for _, t := range l.tenures {
		told := t.told
		if told == nil && t.released != nil && t.released.Err != "" {
			told = t.released
		}
		if told == nil || t.granted == nil || t.way == "all" {
			continue
		}
		at := max(told.At, told.End)
		if told.What == Told && told.End == 0 || t.forced <= at || j.serverHurt(t.granted.At, at) {
			continue
		}
		if other := j.spoiledIn(told.Err); other != "" {
			j.find("lost", l.name, at, t.events(),
				"%s, was granted %q at %s. At %s it was lost because of what is wrong with %q: %s",
				t.who(), l.name, j.when(t.granted.At), j.when(at), other, told.Err)
			continue
		}
		if at >= t.until {
			continue
		}
		j.find("lost", l.name, at, append(t.events(), t.released),
			"%s, was granted %q at %s, and its lease was good until %s. But at %s it was lost, and nobody had taken it away by force: %s",
			t.who(), l.name, j.when(t.granted.At), j.when(t.until), j.when(at), told.Err)
	}
}

// serverHurt tells whether the store itself may have been hurt between from and to, or
// before.
func (j *judgement) serverHurt(from, to int64) bool {
	for _, e := range j.server {
		if e.At <= to && (e.End == 0 || e.End >= from) {
			return true
		}
	}
	return false
}

// request is what an error says was asked for, by the first of its names.
var request = regexp.MustCompile(`\b[a-z]+ "[^"]*"( and \d+ more)?:`)

// spoiledIn is the name that was made unreadable, and is the reason of an error; or "".
func (j *judgement) spoiledIn(text string) string {
	text = request.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "%2F", "/") // as it is in keys and files
	text = strings.ReplaceAll(text, "%2f", "/")
	for _, name := range j.spoiled {
		if _, rest, found := strings.Cut(text, name); found && (rest == "" || rest[0] < '0' || rest[0] > '9') {
			return name
		}
	}
	return ""
}
