package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// ReplicasError is why a grant or a renewal does not count: fewer replicas than
// Options.Replicas have confirmed in time what was written. That may pass.
type ReplicasError struct {
	Want, Have int
	Within     time.Duration
	// Left is why the claim, which was granted, could not leave, if so: it stays until
	// it runs out.
	Left error
}

func (e *ReplicasError) Error() string {
	text := fmt.Sprintf("%d of %d replicas have confirmed it within %v, so it does not count", e.Have, e.Want, e.Within)
	if e.Left != nil {
		text += fmt.Sprintf("; and to leave: %v", e.Left)
	}
	return text
}

// confirmTime bounds how long replicas are waited for.
const confirmTime = time.Second

// grant is run for a script by which a claim may come to hold, or its time is
// extended. short is why that does not count, if so.
func (s *store) grant(ctx context.Context, sc *Script, keys, args []string) (reply string, short, err error) {
	if s.replicas == 0 {
		reply, err = s.run(ctx, sc, keys, args)
		return reply, nil, err
	}
	if err := s.over(ctx); err != nil {
		return "", nil, err
	}
	within := confirmTime
	if end, ok := ctx.Deadline(); ok {
		within = min(within, max(time.Until(end)/2, time.Millisecond))
	}
	reply, n, err := s.confirm.ScriptConfirmed(ctx, sc, keys, args, s.replicas, within)
	if err == nil && n < s.replicas {
		short = &ReplicasError{Want: s.replicas, Have: n, Within: within.Round(time.Millisecond)}
	}
	return reply, short, err
}

// giveUp lets a claim leave that was granted, but does not count. It returns the error.
func (s *store) giveUp(ctx context.Context, r driver.Ref, short error) error {
	e := *short.(*ReplicasError)
	_, e.Left = s.Leave(ctx, driver.Ref{Name: r.Name, ID: r.ID, Mark: r.Mark})
	return &e
}
