package handle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Why a claim was not evicted.
var (
	ErrGone    = errors.New("it is not there any more")
	ErrLingers = errors.New("its holder has ended and asked for the name to stay taken; only --force frees it before the time is up")
	ErrHolds   = errors.New("it holds by now")
)

// Evict removes one claim from the queue of a name, whoever owns it, and no other: it
// is the operator's way to end one of several. It returns what the claim was. With
// waiting it is left alone if it holds by now (ErrHolds), unless it comes to do so in
// this very moment.
//
// A claim that holds is adopted first, so that its owner is told at once where the
// engine can push, and nothing that the owner has sent counts from then on. Where
// nobody can adopt, the owner learns of it with its next renewal. An owner that waited
// and still wants the name enters it anew, behind all others.
//
// After an error of the store the claim may be there or not; Evict may be repeated.
func Evict(ctx context.Context, s driver.Store, name, id string, waiting bool) (was *driver.Entry, err error) {
	v := eviction{s: s, name: name, id: id, mark: driver.NewID()}
	for {
		var q driver.Queue
		err := again(ctx, func(ctx context.Context) (err error) {
			q, err = s.Inspect(ctx, name)
			return err
		})
		if err != nil {
			return v.was, err
		}
		i := slices.IndexFunc(q.Claims, func(e driver.Entry) bool { return e.ID == id })
		switch {
		case i < 0 && v.sent: // by a request whose reply was lost
			return v.was, nil
		case i < 0:
			return nil, ErrGone
		case q.Claims[i].Lingering:
			return &q.Claims[i], ErrLingers
		case waiting && q.Claims[i].State == driver.Holding && !v.sent:
			return &q.Claims[i], ErrHolds
		}
		if !v.sent {
			v.was = &q.Claims[i]
		}
		if done, err := v.try(ctx, q.Kind, &q.Claims[i]); done || err != nil {
			return v.was, err
		}
		select { // it was renewed with another token, granted, or adopted meanwhile
		case <-time.After(between):
		case <-ctx.Done():
			return v.was, context.Cause(ctx)
		}
	}
}

// eviction is one call of Evict.
type eviction struct {
	s        driver.Store
	name, id string
	mark     string // of the claim, once it is adopted
	was      *driver.Entry
	sent     bool // a request that removes it
}

// try removes the claim if it still is as e says, and reports whether it has.
func (v *eviction) try(ctx context.Context, kind driver.Kind, e *driver.Entry) (bool, error) {
	if e.State != driver.Holding || e.Token == 0 { // nobody can adopt what has no token yet
		return v.leave(ctx, "", 0)
	}
	// As long as the claim has: nobody gets the name before its former owner, who may not
	// hear of it, believes it lost by itself, should this process end now.
	a := driver.Adoption{Name: v.name, ID: v.id, Kind: kind, Units: e.Units, Token: e.Token, Mark: v.mark, Owner: e.Owner,
		TTL: min(max(e.TTL, driver.MinTTL), driver.MaxTTL)}
	if driver.CheckLabel(a.Owner.Label) != nil {
		a.Owner.Label = "" // another program's
	}
	var st driver.Status
	err := again(ctx, func(ctx context.Context) (err error) {
		st, err = v.s.Adopt(ctx, a)
		return err
	})
	switch {
	case errors.Is(err, driver.ErrUnsupported):
		return v.leave(ctx, "", e.Token)
	case errors.Is(err, driver.ErrMismatch): // the claim is gone, and the name used as something else
		return false, nil
	case err != nil:
		return false, err
	case st.State == driver.Holding:
		return v.leave(ctx, v.mark, st.Token)
	}
	return false, nil
}

const (
	mostSpare = 1 << 16 // tokens of a claim
	anyToken  = 1 << 62 // what is too much counts as the last that can exist
)

// leave removes the claim if it has that mark. token is its own, 0 if that is not known. Its former
// owner may go on with spare tokens until it hears of this: so it counts as having used
// all of them.
func (v *eviction) leave(ctx context.Context, mark string, token int64) (bool, error) {
	v.sent = true
	used := int64(anyToken)
	if token != 0 {
		used = token + mostSpare
	}
	var was driver.State
	err := again(ctx, func(ctx context.Context) (err error) {
		was, err = v.s.Leave(ctx, driver.Ref{Name: v.name, ID: v.id, Mark: mark, Used: used})
		return err
	})
	if err != nil && mark != "" {
		err = fmt.Errorf("it was taken from its holder, and ends by itself within %v: %w", v.was.TTL.Round(time.Second), err)
	}
	return err == nil && was != driver.Gone, err
}
