package drivertest

import (
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var nameTests = []test{
	{name: "Distinct", run: namesDistinct},
	{name: "OfRecords", run: namesOfRecords, needs: []Feature{Records}},
	{name: "Invalid", run: namesInvalid},
	{name: "InvalidReference", run: namesInvalidRef},
}

// names are some that a store might confuse, or fail on.
func (e *env) names() []string {
	base := e.name()
	long := base + strings.Repeat("x", driver.MaxName-1-len(base))
	wide := base + strings.Repeat("🚚", (driver.MaxName-len(base))/4)
	tails := []string{
		"", "/", "//", "/.", "/..", "/../x", ".", "..", "a", "A", "ab", "a/b", "a%2Fb", "a%2fb", "a b", "a+b", "a  b",
		"a ", " a", "a.", "a:q", "a:r", "a:", ":", "a.json", "a.lock", "a.tmp", "a~", "*", "?", "[a]", "'", `"`, "''", `\`, `\\`, `\'`,
		"`", "$HOME", "$1", "%", "%%", "%s", "_", "-", "#", "&", ";", "; DROP TABLE x", "--", "/*", "|", "<", ">", "=", "@", "!", "~", "^", ",", "(", ")",
		"é", "e\u0301", "ß", "ss", "İ", "i", "I", "🚚", "\u00a0", "\u200b", "\u2028", "\ufeff", "日本", "ﬀ",
		"CON", "nul", "\U0010FFFF",
	}
	all := []string{".", "..", "/", "~", "CON", " ", long, long + "y", long + "z", wide, "-rf"}
	for _, tail := range tails {
		all = append(all, base+tail)
	}
	return all
}

func namesDistinct(e *env) {
	names := e.names()
	claims := make([]driver.Claim, len(names))
	for i, name := range names {
		c := try(e.claim(name))
		claims[i] = c
		st, err := e.a.Enter(e.ctx, c)
		if err != nil {
			e.Fatalf("Enter %q: %v", name, err)
		}
		if st.State != driver.Holding {
			e.Fatalf("%q is taken for another name: %v, by %+v", name, st.State, st.Blocker)
		}
	}
	for i, name := range names {
		q := e.inspect(e.b, name)
		if q.Name != name || len(q.Claims) != 1 || q.Claims[0].ID != claims[i].ID {
			e.Errorf("%q is shown as %+v", name, q)
		}
		e.renew(e.b, claims[i], driver.Holding)
	}
	if !e.lacks(List) {
		listed := e.list(e.b, "")
		for _, name := range names {
			if _, found := slices.BinarySearch(listed, name); !found {
				e.Errorf("List does not yield %q", name)
			}
		}
	}
	for i, name := range names {
		w := e.claim(name)
		e.enter(e.b, w, driver.Waiting)
		e.leave(e.a, claims[i], driver.Holding)
		e.granted(e.b, w)
		e.leave(e.b, w, driver.Holding)
	}
}

func namesOfRecords(e *env) {
	names := e.names()
	versions := make([]int64, len(names))
	for i, name := range names {
		for { // names without a random part may be there from an earlier run
			r, err := e.a.Load(e.ctx, name)
			if err != nil {
				e.Fatalf("Load %q: %v", name, err)
			}
			if r.Version != 0 && len(name) > len("-rf") {
				e.Fatalf("%q is taken for another name: %+v", name, r)
			}
			r.Value, r.TTL = []byte(name), 0
			if r, err = e.a.CompareAndSwap(e.ctx, r); err == nil {
				versions[i] = r.Version
				break
			}
			e.errIs(err, driver.ErrConflict, "CompareAndSwap")
		}
		// A record and a queue of the same name are two things.
		c := e.claim(name + "/queue")
		if len(c.Name) <= driver.MaxName {
			e.enter(e.a, c, driver.Holding)
			e.leave(e.a, c, driver.Holding)
		}
	}
	for i, name := range names {
		r, err := e.b.Load(e.ctx, name)
		if err != nil || r.Name != name || string(r.Value) != name || r.Version != versions[i] {
			e.Errorf("record %q is %q with version %d, want %d: %v", name, r.Value, r.Version, versions[i], err)
		}
		r.Name, r.Version, r.Value = name, versions[i], nil
		if _, err := e.b.CompareAndSwap(e.ctx, r); err != nil {
			e.Errorf("delete %q: %v", name, err)
		}
	}
}

func namesInvalid(e *env) {
	for _, name := range []string{
		"", strings.Repeat("x", driver.MaxName+1), "a\x00b", "a\nb", "\x7f", "a\u0085", "\xff", "a\xc3", "{a}", "a{", "a}",
	} {
		for what, err := range e.callAll(name, driver.NewID()) {
			e.errIs(err, driver.ErrInvalid, what+" with a bad name")
		}
	}
}

func namesInvalidRef(e *env) {
	c := e.claim(e.name())
	e.enter(e.a, c, driver.Holding)
	for _, id := range []string{"", "short", strings.Repeat("x", 65), "quote'quote", "sla/sh/es", "colon:colon", "späte-id"} {
		for what, err := range e.callAll(e.name(), id) {
			if needsID := what == "Enter" || what == "Wait" || what == "Renew" || what == "Leave" || what == "Resize"; needsID {
				e.errIs(err, driver.ErrInvalid, what+" with a bad id")
			}
		}
	}
	for _, ttl := range []time.Duration{0, -1, driver.MinTTL - 1, driver.MaxTTL + 1} {
		r := ref(c)
		r.TTL = ttl
		_, err := e.renewRef(e.a, r)
		e.errIs(err, driver.ErrInvalid, "Renew with a bad TTL")
	}
	if !e.lacks(Linger) {
		for _, linger := range []time.Duration{-1, driver.MaxTTL + 1, 1<<63 - 1} {
			r := ref(c)
			r.Linger = linger
			_, err := e.a.Leave(e.ctx, r)
			e.errIs(err, driver.ErrInvalid, "Leave with a bad linger")
		}
	}
	e.renew(e.a, c, driver.Holding)
	if en := e.entry(e.b, c); en.Lingering {
		e.Error("lingers after a Leave that was invalid")
	}
}

// callAll calls each method that the store has with that name and id, and
// returns the errors.
func (e *env) callAll(name, id string) map[string]error {
	return e.callAllIn(e.ctx, e.a, name, id)
}
