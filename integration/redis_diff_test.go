package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/redisstore"
)

func num(n int64) string { return strconv.FormatInt(n, 10) }

// TestRedisIsQueue runs random operations on the scripts and on package queue,
// at the same times, and compares everything that either of them keeps,
// answers, or tells others.
func TestRedisIsQueue(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	now := time.Now().UnixMicro()
	const deaf = 2
	var conns [4]*clockConn // the last one enters nothing
	var stores [4]*redisstore.Store
	for i := range stores {
		conns[i] = newClockConn(t, c, func() int64 { return now })
		conns[i].deaf = i == deaf
		s, err := redisstore.New(conns[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	// Both that can hear do so before anything happens.
	for i := range deaf {
		up := make(chan struct{}, 1)
		go stores[i].Listen(t.Context(), func(n driver.Notice) {
			if n.Kind == driver.Check && n.ID == "" {
				up <- struct{}{}
			}
		})
		<-up
	}
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		d := &diff{name: fmt.Sprintf("run %d", run), run: strconv.Itoa(run), other: stores[3], c: c, now: &now, told: make(map[int][]string), left: make(map[string]int64)}
		d.limit = rapid.SampledFrom([]int64{1, 1, 3}).Draw(t, "limit")
		for i := range conns {
			conns[i].take()
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, 2).Draw(t, "store")
			d.step(t, i, stores[i], deaf)
			d.compare(t)
		}
		for i := range deaf {
			want := d.told[i]
			var got []string
			for end := time.Now().Add(5 * time.Second); len(got) < len(want) && time.Now().Before(end); {
				got = append(got, conns[i].take()...)
			}
			// Nothing more than that: a message of our own comes after all others.
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			d.fence(ctx, t, conns[i], &got)
			cancel()
			if !slices.Equal(got, want) {
				t.Fatalf("store %d was told\n%q\nwant\n%q", i, got, want)
			}
		}
	})
}

type diff struct {
	name  string
	run   string // makes the ids of this run its own
	limit int64
	other *redisstore.Store
	c     client.Client
	now   *int64
	model queue.Queue
	left  map[string]int64 // until when claims stay out that were not there when they left
	told  map[int][]string // by store
}

var diffIDs = []string{"claim--a", "claim--b", "claim--c", "claim--d", "claim--e", "claim--f"}

func (d *diff) step(t *rapid.T, from int, s *redisstore.Store, deaf int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	*d.now += rapid.SampledFrom([]int64{1, 1, 1000, 60_000, 150_000, 400_000, 61_000_000, -1000}).Draw(t, "pass")
	id := rapid.SampledFrom(diffIDs).Draw(t, "id") + d.run
	ttl := rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}).Draw(t, "ttl")
	used := int64(0)
	if mine := d.model.Find(id); mine != nil && mine.Token != 0 && rapid.Bool().Draw(t, "uses") {
		used = mine.Token + rapid.Int64Range(0, 100).Draw(t, "used")
	}
	o := &queue.Op{
		Now: *d.now, Session: strconv.Itoa(from),
		Reachable: func(c *queue.Claim) bool { return c.Session != strconv.Itoa(deaf) },
	}
	sent := time.Now()
	var want, got driver.Status
	var wantErr, err error
	ref := driver.Ref{Name: d.name, ID: id, TTL: ttl, Used: used}
	what := rapid.SampledFrom([]string{"enter", "enter", "enter", "renew", "renew", "leave", "leave", "linger", "resize", "break", "inspect", "look"}).Draw(t, "op")
	switch what {
	case "enter":
		c := driver.Claim{
			Name: d.name, ID: id, TTL: ttl, Limit: d.limit,
			Units:    rapid.Int64Range(1, d.limit).Draw(t, "units"),
			Try:      rapid.IntRange(0, 3).Draw(t, "try") == 0,
			Overtake: rapid.IntRange(0, 3).Draw(t, "overtake") == 0,
			Owner:    driver.Owner{Label: "a \"\\ ü 'x'", Host: "h", PID: 7},
		}
		if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
			c.Limit++
		}
		if d.left[id] > *d.now { // and stays out: only a late request would enter it again
			o.Look(&d.model)
			got, err = s.Enter(ctx, c)
			break
		}
		var st driver.State
		st, wantErr = o.Enter(&d.model, queue.Claim{ID: id, Session: o.Session, Owner: c.Owner, Units: c.Units, Overtake: c.Overtake},
			c.Limit, queue.Micros(ttl), c.Try)
		if wantErr == nil {
			want = d.model.Status(id, st, *d.now, sent, ttl)
		}
		got, err = s.Enter(ctx, c)
	case "renew":
		want = d.model.Status(id, o.Renew(&d.model, id, queue.Micros(ttl), used), *d.now, sent, ttl)
		s.Renew(ctx, []driver.Ref{ref}, func(_ int, st driver.Status, e error) { got, err = st, e })
	case "leave", "linger":
		if what == "linger" {
			ref.Linger = ttl
		}
		want.State = o.Leave(&d.model, id, used, queue.Micros(ref.Linger))
		got.State, err = s.Leave(ctx, ref)
		if want.State == driver.Gone {
			d.left[id] = *d.now + 60_000_000
		}
	case "resize":
		units := rapid.Int64Range(1, d.limit+1).Draw(t, "units")
		want = d.model.Status(id, o.Resize(&d.model, id, units, used), *d.now, time.Time{}, 0)
		got, err = s.Resize(ctx, ref, units)
	case "break", "inspect":
		var list []driver.Entry
		if what == "break" {
			for _, c := range o.Break(&d.model) {
				list = append(list, c.Entry(*d.now))
			}
			var broken []driver.Entry
			broken, err = s.Break(ctx, d.name)
			same(t, "broken", broken, list)
		} else {
			o.Look(&d.model)
			var q driver.Queue
			q, err = s.Inspect(ctx, d.name)
			same(t, "claims", q.Claims, d.model.View(d.name, *d.now).Claims)
		}
	case "look":
		o.Look(&d.model)
		if c := d.model.Find(id); c != nil && (!c.Holding() || c.Lingering) {
			_, err = s.Inspect(ctx, d.name) // Wait would block
			break
		}
		want = d.model.Status(id, d.model.State(id), *d.now, time.Time{}, 0)
		got, err = d.other.Wait(ctx, ref)
		// Who asks is not told in addition; Look does not know who asks.
		o.Signals = slices.DeleteFunc(o.Signals, func(s queue.Signal) bool { return s.Kind == queue.Granted && s.Claim.ID == id })
	}
	if l, ok := errors.AsType[*driver.LimitError](err); ok && wantErr != nil {
		if l.Have != wantErr.(*driver.LimitError).Have {
			t.Fatalf("%s: %v, want %v", what, err, wantErr)
		}
	} else if err != nil || wantErr != nil {
		t.Fatalf("%s: error %v, want %v", what, err, wantErr)
	}
	d.sameStatus(t, what, got, want)
	for _, sig := range o.Signals {
		to, _ := strconv.Atoi(sig.Claim.Session)
		if to == deaf {
			continue
		}
		text := ""
		switch sig.Kind {
		case queue.Granted:
			alone := 0
			if sig.Claim.Units == d.model.Limit {
				alone = 1
			}
			text = fmt.Sprintf("g %s %d %d %d", sig.Claim.ID, sig.Claim.Token, d.waiting(), alone)
		case queue.Wanted:
			text = "w " + sig.Claim.ID
		case queue.Broken:
			text = "b " + sig.Claim.ID
		}
		d.told[to] = append(d.told[to], text)
	}
}

func (d *diff) waiting() (n int) {
	for i := range d.model.Claims {
		if !d.model.Claims[i].Holding() {
			n++
		}
	}
	return n
}

func (d *diff) sameStatus(t *rapid.T, what string, got, want driver.Status) {
	gb, wb := got.Blocker, want.Blocker
	gr := got.Recheck
	if got.Deadline.IsZero() != want.Deadline.IsZero() {
		t.Fatalf("%s: deadline %v, want %v", what, got.Deadline, want.Deadline)
	}
	got.Blocker, want.Blocker = nil, nil
	got.Deadline, want.Deadline, got.Recheck, want.Recheck = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if want.State == driver.Refused { // says nothing about what the claim holds
		want.Token, want.Spare, want.Behind = 0, 0, 0
	}
	if got != want {
		t.Fatalf("%s: %+v, want %+v", what, got, want)
	}
	if (gb == nil) != (wb == nil) {
		t.Fatalf("%s: blocked by %+v, want %+v", what, gb, wb)
	}
	if gb == nil {
		return
	}
	// Any other holder is right; where there can be one only, it is that one.
	c := d.model.Find(gb.ID)
	if c == nil || !c.Holding() || *gb != c.Entry(*d.now) || d.model.Limit == 1 && *gb != *wb {
		t.Fatalf("%s: blocked by %+v, want %+v", what, gb, wb)
	}
	if want.State == driver.Waiting && gr.After(time.Now().Add(wb.TTL+time.Second)) {
		t.Fatalf("%s: looks again in %v, but %s may run out in %v", what, time.Until(gr), wb.ID, wb.TTL)
	}
}

func same(t *rapid.T, what string, got, want []driver.Entry) {
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n%+v, want\n%+v", what, got, want)
	}
}

// compare reads what the server keeps, and the counters it derives from it.
func (d *diff) compare(t *rapid.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	key := "pawl:{" + d.name + "}"
	h, err := d.c.Do(ctx, d.c.B().Hgetall().Key(key).Build()).AsStrMap()
	if err != nil {
		t.Fatal(err)
	}
	waits, err := d.c.Do(ctx, d.c.B().Zrange().Key(key+":q").Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	var state [9]int64 // last x limit used n o seq min b
	if s := h["s"]; len(h) > 0 {
		f := strings.SplitN(s, " ", 11)
		switch f[0] {
		case "f": // last x
			f = []string{f[1], f[2] + "000000", "0", "0", "0", "0", "0", "0", "0"}
		case "h": // last x at spoke ttl id units limit flags tail
			h[f[6]] = strings.Join([]string{f[7], f[9], f[4], f[3], f[5], f[1], f[1], "0", f[1], f[10]}, " ")
			f = []string{f[1], f[2] + "000000", f[8], f[7], "0", "0", "0", "0", "0"}
		}
		for i := range state {
			if state[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
				t.Fatalf("kept: %v: %v", h, err)
			}
		}
	}
	type kept struct {
		seq  int64
		text string
	}
	var have []kept
	for id, text := range h {
		if len(id) < 8 || strings.HasPrefix(text, "left ") {
			continue
		}
		f := strings.SplitN(text, " ", 11)
		n := make([]int64, len(f))
		for i := range f {
			n[i], _ = strconv.ParseInt(f[i], 10, 64)
		}
		have = append(have, kept{n[7], fmt.Sprintf("%s %d %d %d %d %d %d %s", id, n[3]+n[4], n[2], n[5], n[6], n[0], n[8], f[1])})
	}
	sort.Slice(have, func(i, k int) bool { return have[i].seq < have[k].seq })
	var got, want, wantWaits []string
	for _, k := range have {
		got = append(got, k.text)
	}
	var used, over int64
	first := int64(0)
	for i := range d.model.Claims {
		c := &d.model.Claims[i]
		flags := ""
		if c.Overtake {
			flags += "o"
		}
		if c.Lingering {
			flags += "l"
		}
		want = append(want, fmt.Sprintf("%s %d %d %d %d %d %d %s-", c.ID, c.Expires, c.Used, c.Granted, c.Token, c.Units, c.Arrived, flags))
		if c.Holding() {
			used += c.Units
		} else {
			wantWaits = append(wantWaits, c.ID)
			if c.Overtake {
				over++
			}
		}
		if first == 0 || c.Expires < first {
			first = c.Expires
		}
	}
	if !slices.Equal(got, want) || !slices.Equal(waits, wantWaits) {
		t.Fatalf("kept:\n%q\n%q, want\n%q\n%q", got, waits, want, wantWaits)
	}
	if state[0] != d.model.Last || state[3] != used || state[4] != int64(len(wantWaits)) || state[5] != over {
		t.Fatalf("kept: %v, want last %d, used %d, n %d, o %d", h, d.model.Last, used, len(wantWaits), over)
	}
	if len(want) == 0 && (state[6] != 0 || state[7] != 0) {
		t.Fatalf("kept: %v, but the queue is empty", h)
	}
	if len(want) > 0 && (state[2] != d.model.Limit || state[7] > first || state[1] < first+queue.Keep) {
		t.Fatalf("kept: %v, want limit %d, min up to %d, x a minute more", h, d.model.Limit, first)
	}
}

// fence waits until all that was sent to the store before has arrived.
func (d *diff) fence(ctx context.Context, t *rapid.T, c *clockConn, got *[]string) {
	channel := c.channelName()
	if err := d.c.Do(ctx, d.c.B().Publish().Channel(channel).Message("end").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		for _, m := range c.take() {
			if m == "end" {
				return
			}
			*got = append(*got, m)
		}
		time.Sleep(50 * time.Microsecond)
	}
	t.Fatal("no message comes back")
}
