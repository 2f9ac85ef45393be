package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
)

// ring passes a message from process to process, each by one bare PUBLISH to
// the channel of the next: the least that a hand-over by message can cost. It
// is measured like one: from the call that publishes to the goroutine that
// waited for it.
type ring struct {
	Addr               string
	Process, Processes int
}

func (r ring) channel(i int) string { return fmt.Sprint("ring-", i%r.Processes) }

func (r ring) run(ctx context.Context, a *arena) (*tally, error) {
	var sent wire.Counter
	client, err := rueidis.NewClient(rueidisOption(r.Addr, &sent))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	got, lost, release, err := listen(ctx, client, r.channel(r.Process))
	if err != nil {
		return nil, err
	}
	defer release()

	clock := measure.NewClock()
	a.ready.Add(1)
	if err := a.gun(ctx, clock); err != nil {
		return nil, err
	}
	commands := sent.Commands()
	t := &tally{Sections: make([]int64, 1)}
	id := int64(r.Process*perProcess + 1)
	pass := func() error {
		a.exit(id, clock.Now())
		return client.Do(ctx, client.B().Publish().Channel(r.channel(r.Process+1)).Message("go").Build()).Error()
	}
	if r.Process == 0 {
		if err := pass(); err != nil {
			return nil, err
		}
	}
	stopped := time.NewTicker(5 * time.Millisecond)
	defer stopped.Stop()
	last := clock.Now()
	for a.stop.Load() == 0 {
		select {
		case <-got:
			now := clock.Now()
			t.All.Record(time.Duration(now - a.released.Load()))
			t.Longest = max(t.Longest, time.Duration(now-last))
			a.enter(id)
			t.Sections[0]++
			last = now
			if err := pass(); err != nil {
				return nil, err
			}
		case err := <-lost:
			return nil, fmt.Errorf("listen: %w", err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-stopped.C:
		}
	}
	t.Between = t.All
	t.Commands = sent.Commands() - commands
	return t, nil
}

// listen subscribes to a channel on a connection of its own.
func listen(ctx context.Context, client rueidis.Client, channel string) (got chan struct{}, lost <-chan error, release func(), err error) {
	sub, release := client.Dedicate()
	got = make(chan struct{}, 1)
	up := make(chan struct{}, 1)
	lost = sub.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(rueidis.PubSubSubscription) {
			select {
			case up <- struct{}{}:
			default:
			}
		},
		OnMessage: func(rueidis.PubSubMessage) { got <- struct{}{} },
	})
	if err = sub.Do(ctx, sub.B().Subscribe().Channel(channel).Build()).Error(); err == nil {
		select {
		case <-up:
			return got, lost, release, nil
		case err = <-lost:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	release()
	return nil, nil, nil, fmt.Errorf("subscribe: %w", err)
}
