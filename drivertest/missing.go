package drivertest

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

// missing says for each feature what must return driver.ErrUnsupported in a
// store that lacks it.
var missing = map[Feature]func(*env) error{
	Queue: func(*env) error { return driver.ErrUnsupported }, // it is no call
	Kinds: func(e *env) error {
		for _, kind := range kinds {
			_, err := e.a.Enter(e.ctx, of(kind, e.claim(e.name())))
			if kind != driver.KindMutex {
				e.errIs(err, driver.ErrUnsupported, "Enter of kind "+kind.String())
			} else if err != nil {
				e.Errorf("Enter of a mutex: %v", err)
			}
		}
		return driver.ErrUnsupported // all of them have told
	},
	Units: func(e *env) error {
		_, err := e.a.Enter(e.ctx, e.part(e.name(), 1, 2))
		return err
	},
	Overtake: func(e *env) error {
		c := e.claim(e.name())
		c.Overtake = true
		_, err := e.a.Enter(e.ctx, c)
		return err
	},
	Linger: func(e *env) error {
		c := e.claim(e.name())
		e.enter(e.a, c, driver.Holding)
		r := ref(c)
		r.Linger = time.Minute
		_, err := e.a.Leave(e.ctx, r)
		return err
	},
	Adopt: func(e *env) error {
		c := e.claim(e.name())
		_, err := e.b.Adopt(e.ctx, adoption(c, e.enter(e.a, c, driver.Holding).Token))
		return err
	},
	Resize: func(e *env) error {
		c := e.claim(e.name())
		e.enter(e.a, c, driver.Holding)
		_, err := e.a.Resize(e.ctx, ref(c), 1)
		return err
	},
	Break: func(e *env) error {
		_, err := e.a.Break(e.ctx, e.name())
		return err
	},
	List: func(e *env) error {
		for _, err := range e.a.List(e.ctx, "") {
			return err
		}
		return nil
	},
	SetLimit: func(e *env) error { return e.a.SetLimit(e.ctx, e.name(), driver.KindSemaphore, 1, 2) },
	Ask:      func(e *env) error { return e.a.Ask(e.ctx, e.name()) },
	Recheck: func(e *env) error {
		h, w := e.claim(e.name()), driver.Claim{}
		w = e.claim(h.Name)
		e.enter(e.a, h, driver.Holding)
		if st := e.enter(e.b, w, driver.Waiting); !st.Recheck.IsZero() {
			e.Errorf("Recheck is declared missing, but is in %v", time.Until(st.Recheck))
		}
		return driver.ErrUnsupported // it is no call
	},
	Drawn:    func(*env) error { return driver.ErrUnsupported }, // it is no call
	Gathered: func(*env) error { return driver.ErrUnsupported }, // it is no call
	Listen: func(e *env) error {
		return e.a.Listen(e.ctx, func(driver.Notice) {})
	},
	Records: func(e *env) error {
		_, err := e.a.CompareAndSwap(e.ctx, driver.Record{Name: e.name(), Value: []byte("x")})
		e.errIs(err, driver.ErrUnsupported, "CompareAndSwap")
		_, err = e.a.WaitChange(e.ctx, e.name(), 0)
		e.errIs(err, driver.ErrUnsupported, "WaitChange")
		_, err = e.a.Load(e.ctx, e.name())
		return err
	},
	RecordTTL: func(e *env) error {
		_, err := e.a.CompareAndSwap(e.ctx, driver.Record{Name: e.name(), Value: []byte("x"), TTL: time.Minute})
		return err
	},
}

// missingTests checks that what a harness declares as missing is refused, and
// shows why.
func missingTests() (tests []test) {
	for feature, call := range missing {
		tests = append(tests, test{name: string(feature), run: func(e *env) {
			why := e.h.Missing[feature]
			if why == "" {
				e.Skip("the store can do this")
			}
			e.errIs(call(e), driver.ErrUnsupported, "a call that needs "+string(feature))
			e.Skipf("%s: %s", feature, why)
		}})
	}
	return tests
}
