package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// listenPause is the time between attempts to listen to a node.
const listenPause = 200 * time.Millisecond

// Listen passes on what the nodes notice, but for grants: that one node has granted is
// no more than a part of the news, and Wait tells the whole.
func (s *store) Listen(ctx context.Context, f func(driver.Notice)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var nodes sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	all := make(chan struct{})
	for _, n := range s.nodes {
		nodes.Go(func() {
			err := s.listenTo(ctx, n, f)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, s.Failure(n.index, err))
			}
		})
	}
	go func() { nodes.Wait(); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
	case <-s.Context().Done():
	}
	err := ctx.Err()
	cancel()
	<-all
	switch {
	case err != nil:
		return err
	case s.Context().Err() != nil:
		return driver.ErrClosed
	}
	return errors.Join(errs...)
}

// listenTo listens to one node until ctx ends. It returns an error that stays.
func (s *store) listenTo(ctx context.Context, n *node, f func(driver.Notice)) error {
	for {
		err := n.Listen(ctx, func(notice driver.Notice) {
			if notice.Kind != driver.Granted {
				f(notice)
			}
		})
		if driver.IsPermanent(err) {
			return err
		}
		t := time.NewTimer(listenPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// nameError returns the name that an error of a List is about, if it is about one.
func nameError(err error) (string, bool) {
	if e, ok := errors.AsType[*driver.NameError](err); ok {
		return e.Name, true
	}
	return "", false
}
