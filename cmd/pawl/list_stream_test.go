//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// listStore lists what it is told to.
type listStore struct {
	driver.Store
	list   func(ctx context.Context, yield func(driver.Queue, error) bool)
	silent bool // it does not reply to requests
}

func (s *listStore) List(ctx context.Context, _ string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) { s.list(ctx, yield) }
}

func (s *listStore) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if s.silent {
		<-ctx.Done()
		return driver.Queue{}, ctx.Err()
	}
	return s.Store.Inspect(ctx, name)
}

// listOf lists such a store.
func listOf(t *testing.T, s *listStore, asJSON bool) (out, errs string, err error) {
	t.Helper()
	s.Store = memstore.New()
	defer s.Close()
	var stdout, stderr bytes.Buffer
	a := &app{out: &stdout, err: &stderr, json: asJSON}
	err = a.list(t.Context(), pawl.New(s, nil), "")
	return stdout.String(), stderr.String(), err
}

func queueNamed(name string) driver.Queue {
	return driver.Queue{Name: name, Kind: driver.KindMutex, Limit: 1, Claims: []driver.Entry{{ID: "ID", State: driver.Holding, Units: 1}}}
}

func TestListPassesOverWhatItCannotRead(t *testing.T) {
	s := &listStore{list: func(_ context.Context, yield func(driver.Queue, error) bool) {
		_ = yield(queueNamed("b"), nil) && yield(driver.Queue{}, &driver.NameError{Name: "bad", Err: errors.New("spoiled")}) && yield(queueNamed("a"), nil)
	}}
	out, errs, err := listOf(t, s, false)
	if a, b := strings.Index(out, "\na "), strings.Index(out, "\nb "); a < 0 || b < a {
		t.Errorf("it lists\n%s", out)
	}
	if !strings.Contains(errs, `"bad": spoiled`) || err == nil || classify(err).status != 65 || !strings.Contains(err.Error(), "1 names can't be read") {
		t.Errorf("%v, and told %q", err, errs)
	}
	out, _, err = listOf(t, s, true)
	var all []queueJSON
	if e := json.Unmarshal([]byte(out), &all); e != nil || len(all) != 2 || all[0].Kind != "mutex" || classify(err).status != 65 {
		t.Errorf("%v, %v in %s", e, err, out)
	}
}

// What was read is printed, if the rest does not come: neither all at the end nor
// none.
func TestListOfAStoreThatFallsSilent(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			began := time.Now()
			s := &listStore{silent: true, list: func(ctx context.Context, yield func(driver.Queue, error) bool) {
				for i := range 2500 {
					if !yield(queueNamed(fmt.Sprintf("name/%04d", i)), nil) {
						return
					}
				}
				<-ctx.Done()
				yield(driver.Queue{}, ctx.Err())
			}}
			out, _, err := listOf(t, s, asJSON)
			if n := strings.Count(out, "name/"); n != 2500 {
				t.Errorf("%d of 2500 names are printed", n)
			}
			if json.Valid([]byte(out)) {
				t.Error("what is not complete passes for it")
			}
			if err == nil || classify(err).status != exitUnreachable || !strings.Contains(err.Error(), "no reply in 5s") {
				t.Error(err)
			}
			if d := time.Since(began); d > 3*requestTimeout {
				t.Errorf("it waited for %v", d)
			}
		})
	}
}

// A store that has much to look through is waited for while it replies, and what
// comes is printed meanwhile.
func TestListOfASlowStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var printed bytes.Buffer
		s := &listStore{Store: memstore.New()}
		defer s.Close()
		s.list = func(ctx context.Context, yield func(driver.Queue, error) bool) {
			for _, name := range []string{"first", "second", "third"} {
				time.Sleep(time.Minute)
				if ctx.Err() != nil || !yield(queueNamed(name), nil) {
					yield(driver.Queue{}, ctx.Err())
					return
				}
			}
			if !strings.Contains(printed.String(), "first") {
				t.Error("nothing is printed before the end")
			}
		}
		a := &app{out: &printed, err: &printed}
		if err := a.list(t.Context(), pawl.New(s, nil), ""); err != nil || !strings.Contains(printed.String(), "third") {
			t.Errorf("%v: %s", err, &printed)
		}
	})
}
