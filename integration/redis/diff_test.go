package redis

import (
	"cmp"
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
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/redisstore"
)

func num(n int64) string { return strconv.FormatInt(n, 10) }

// TestRedisIsQueue runs random operations on the scripts and on package queue,
// at the same times, and compares everything that either of them keeps,
// returns, or tells others.
func TestRedisIsQueue(t *testing.T) {
	eachServer(t, func(t *testing.T, r *servers.Redis) { isQueue(t, r, redisstore.New) })
}

// The same of requests that are sent in groups.
func TestRedisIsQueueInGroups(t *testing.T) {
	t.Parallel()
	isQueue(t, servers.RunRedis(t, servers.RedisOptions{}), func(conn redisstore.Conn, _ *redisstore.Options) (*redisstore.Store, error) {
		return newGrouped(t, conn), nil
	})
}

func isQueue(t *testing.T, r *servers.Redis, open func(redisstore.Conn, *redisstore.Options) (*redisstore.Store, error)) {
	c := dialRedis(t, r)
	now := time.Now().UnixMicro()
	const deaf = 2
	var conns [4]*clockConn // the last one enters nothing
	var stores [4]*redisstore.Store
	for i := range stores {
		conns[i] = newClockConn(t, c, func() int64 { return now })
		conns[i].deaf = i == deaf
		s, err := open(conns[i], nil)
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
		now += 10e6 // past all tokens of the last one
		if err := c.Do(context.Background(), c.B().Del().Key("pawl:mark").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if err := c.Do(context.Background(), c.B().Del().Key("pawl:memory").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		d := &diff{run: strconv.Itoa(run), other: stores[3], c: c, now: &now, told: make(map[int][]string)}
		d.limit = rapid.SampledFrom([]int64{1, 1, 3}).Draw(t, "limit")
		for i := range d.queues {
			d.queues[i] = &diffQueue{name: fmt.Sprintf("run %d, queue %d", run, i), left: make(map[string]int64)}
		}
		for i := range conns {
			conns[i].take()
		}
		d.admit(t, stores[3])
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, 2).Draw(t, "store")
			q := d.queues[rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1, 2}).Draw(t, "queue")]
			if rapid.IntRange(0, 9).Draw(t, "all") == 0 {
				d.enterAll(t, i, stores[i], deaf)
			} else {
				d.step(t, q, i, stores[i], deaf)
			}
			for _, q := range d.queues {
				d.compare(t, q)
			}
			d.compareMark(t)
		}
		for i := range deaf {
			want := d.told[i]
			var got []string
			for end := time.Now().Add(await.Limit); len(got) < len(want) && time.Now().Before(end); {
				got = append(got, conns[i].take()...)
			}
			// Nothing more than that: a message of our own comes after all others.
			ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
			d.fence(ctx, t, conns[i], &got)
			cancel()
			if !slices.Equal(got, want) {
				t.Fatalf("store %d was told\n%q\nwant\n%q", i, got, want)
			}
		}
	})
}

type diff struct {
	run    string // makes the ids of this run its own
	limit  int64
	other  *redisstore.Store
	c      client.Client
	now    *int64
	queues [3]*diffQueue
	told   map[int][]string // by store

	written  bool  // the mark of all names is there
	admitted int64 // the mark with which the server became one of a quorum

	high, timely int64 // what the mark of all names is to be; see draw in machine.lua
	back         bool  // the clock was set back, as of the start of the operation
}

type diffQueue struct {
	name  string
	model queue.Queue
	left  map[string]int64 // until when claims stay out that were not there when they left
	fresh bool             // nothing is known of it
}

// begin lets the model forget what the server does not know any more, before an
// operation.
func (d *diff) begin(queues ...*diffQueue) {
	d.back = *d.now <= d.high
	for _, q := range queues {
		if q.fresh = !q.model.InUse(); !q.fresh {
			continue
		}
		q.model = queue.Queue{Last: *d.now - 1}
		if d.back {
			q.model.Last = max(d.high, d.timely+queue.Spare)
		}
	}
}

// drawn notes a claim that was given a token.
func (d *diff) drawn(q *diffQueue, c *queue.Claim) {
	q.fresh = false
	d.high = max(d.high, c.Token)
	if !d.back {
		d.timely = max(d.timely, c.Token)
	}
	d.noSpare(c)
}

func (d *diff) noSpare(c *queue.Claim) { c.Alone = c.Alone && !d.back }

// end notes what was used of a name that went out of use.
func (d *diff) end(q *diffQueue) {
	if !q.model.InUse() && !q.fresh {
		d.high = max(d.high, q.model.Last)
	}
}

const diffEpoch = "epoch-1"

// admit lets the server vote.
func (d *diff) admit(t *rapid.T, s *redisstore.Store) {
	d.admitted = rapid.SampledFrom([]int64{0, *d.now - 1e6, *d.now + 500, *d.now + 3e6}).Draw(t, "admitted")
	m, err := s.Quarantine(context.Background(), time.Second)
	if err != nil || m.Epoch != "" || m.Left != time.Second {
		t.Fatalf("a quarantine begins: %+v, %v", m, err)
	}
	m, err = s.Remember(context.Background(), driver.Admission{Quarantine: m.Quarantine, Epoch: diffEpoch, Mark: d.admitted, AtOnce: true})
	if err != nil || m != (driver.Memory{Epoch: diffEpoch, Mark: d.admitted}) {
		t.Fatalf("it ends: %+v, %v", m, err)
	}
	d.high = d.admitted
	d.written = true
}

// vote is a vote on the model, and returns what the store is to return.
func (d *diff) vote(q *diffQueue, o *queue.Op, v *driver.Vote, sent time.Time) (driver.Status, error) {
	before := int64(0)
	if c := q.model.Find(v.ID); c != nil {
		before = c.Token
	}
	d.back = true // no spare tokens
	if q.left[v.ID] > 0 {
		o.Floor = max(v.Floor, d.admitted+1)
		o.Look(&q.model)
		return driver.Status{}, nil
	}
	st, err := o.Vote(&q.model, v, d.admitted)
	if c := q.model.Find(v.ID); c != nil && before != 0 && c.Token > before {
		d.high = max(d.high, q.model.Last)
	}
	if err != nil {
		return driver.Status{}, err
	}
	return q.model.Status(v.ID, st, *d.now, sent, v.TTL), nil
}

var diffMarks = []string{"", "mark--of-a", "mark--of-b"}

var diffIDs = []string{"claim--a", "claim--b", "claim--c", "claim--d", "claim--e", "claim--f"}

func (d *diff) step(t *rapid.T, q *diffQueue, from int, s *redisstore.Store, deaf int) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	d.pass(t)
	id := rapid.SampledFrom(diffIDs).Draw(t, "id") + d.run
	ttl := rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}).Draw(t, "ttl")
	used := int64(0)
	mine := q.model.Find(id)
	if mine != nil && mine.Token != 0 && rapid.Bool().Draw(t, "uses") {
		used = mine.Token + rapid.Int64Range(0, 100).Draw(t, "used")
	}
	if rapid.IntRange(0, 19).Draw(t, "odd") == 0 {
		used = rapid.SampledFrom([]int64{1<<63 - 1, 1e16 + 1, 9e15, 5, -1, -1 << 63}).Draw(t, "odd used")
	}
	o := d.op(from, deaf)
	d.begin(q)
	o.Drawn = func(c *queue.Claim) { d.drawn(q, c) }
	sent := time.Now()
	var want, got driver.Status
	var wantErr, err error
	ref := driver.Ref{Name: q.name, ID: id, TTL: ttl, Used: used}
	if mine != nil {
		ref.Mark = mine.Mark
	}
	if rapid.IntRange(0, 5).Draw(t, "whose") == 0 {
		ref.Mark = rapid.SampledFrom(diffMarks).Draw(t, "mark")
	}
	what := rapid.SampledFrom([]string{"enter", "enter", "vote", "vote", "withdraw", "renew", "renew", "leave", "leave", "linger", "resize", "limit", "adopt", "ask", "break", "inspect", "look"}).Draw(t, "op")
	switch what {
	case "enter":
		c := d.claim(t, q, id, ttl)
		c.Try = rapid.IntRange(0, 3).Draw(t, "try") == 0
		d.bars(ctx, t, q, id)
		if q.left[id] > 0 { // and stays out: only a late request would enter it again
			o.Look(&q.model)
			got, err = s.Enter(ctx, c)
			break
		}
		var st driver.State
		st, wantErr = o.Enter(&q.model, &c)
		if wantErr == nil {
			want = q.model.Status(id, st, *d.now, sent, ttl)
		}
		got, err = s.Enter(ctx, c)
	case "vote":
		v := driver.Vote{Claim: d.claim(t, q, id, ttl), Epoch: diffEpoch}
		v.Try = rapid.IntRange(0, 2).Draw(t, "try") > 0
		v.Floor = max(0, *d.now+rapid.Int64Range(-1000, 1000).Draw(t, "floor"))
		if mine != nil && mine.Holding() {
			v.Token = mine.Token + rapid.SampledFrom([]int64{-1, 0, 1, 500}).Draw(t, "raise")
		}
		d.bars(ctx, t, q, id)
		if rapid.IntRange(0, 9).Draw(t, "other epoch") == 0 {
			v.Epoch = "epoch-2"
			_, err := s.Vote(ctx, v)
			if e, ok := errors.AsType[*driver.EpochError](err); !ok || e.Have != diffEpoch || e.Want != v.Epoch {
				t.Fatalf("a vote for another epoch: %v", err)
			}
			d.begin(q)
			return
		}
		want, wantErr = d.vote(q, o, &v, sent)
		got, err = s.Vote(ctx, v)
		if c := q.model.Find(id); mine == nil && c != nil && c.Holding() && d.isLone(t, q) {
			// The token stands for the time, and may be ahead of the clock.
			c.Granted, c.Arrived = c.Token, c.Token
		}
	case "withdraw":
		token := int64(0)
		if mine != nil {
			token = mine.Token + rapid.SampledFrom([]int64{0, 0, 1}).Draw(t, "of another")
		}
		want.State = o.Withdraw(&q.model, id, token)
		got.State, err = s.Withdraw(ctx, q.name, id, token)
	case "renew":
		want = q.model.Status(id, o.Renew(&q.model, ref), *d.now, sent, ttl)
		s.Renew(ctx, []driver.Ref{ref}, func(_ int, st driver.Status, e error) { got, err = st, e })
	case "leave", "linger":
		if what == "linger" {
			ref.Linger = ttl
		}
		want.State = o.Leave(&q.model, ref)
		got.State, err = s.Leave(ctx, ref)
		if q.model.Find(id) == nil && want.State == driver.Gone {
			q.left[id] = *d.now + 60_000_000
		}
	case "resize":
		units := rapid.Int64Range(1, d.limit+1).Draw(t, "units")
		want = q.model.Status(id, o.Resize(&q.model, ref, units), *d.now, time.Time{}, 0)
		got, err = s.Resize(ctx, ref, units)
	case "limit":
		was, limit := d.limit, rapid.Int64Range(1, d.limit+1).Draw(t, "new limit")
		if q.model.InUse() {
			was = rapid.SampledFrom([]int64{q.model.Limit, max(q.model.Declared, 1), d.limit + 2}).Draw(t, "was")
			limit = rapid.SampledFrom([]int64{limit, limit, max(q.model.Declared, 1)}).Draw(t, "or back")
		}
		kind := d.kind(t, q)
		wantErr = o.SetLimit(&q.model, kind, was, limit)
		err = s.SetLimit(ctx, q.name, kind, was, limit)
	case "adopt":
		a := driver.Adoption{
			Name: q.name, ID: id, Kind: d.kind(t, q), Units: 1, Token: 1, TTL: ttl,
			Mark: rapid.SampledFrom(diffMarks[1:]).Draw(t, "new mark"), Owner: driver.Owner{Label: "heir"},
		}
		if mine != nil {
			a.Units = mine.Units
			if rapid.IntRange(0, 9).Draw(t, "other units") == 0 {
				a.Units++
			}
			a.Token = max(1, max(mine.Token, mine.Used)+rapid.SampledFrom([]int64{0, 0, 0, 1, 50, -1}).Draw(t, "more"))
			switch rapid.IntRange(0, 4).Draw(t, "far") {
			case 0:
				a.Token = mine.Token + queue.Spare
			case 1:
				a.Token = mine.Token + queue.Spare + 1
			}
		}
		var st driver.State
		st, wantErr = o.Adopt(&q.model, &a)
		if wantErr == nil {
			want = q.model.AdoptStatus(&a, st, *d.now, sent)
		}
		got, err = s.Adopt(ctx, a)
	case "ask":
		o.Ask(&q.model)
		err = s.Ask(ctx, q.name)
	case "break", "inspect":
		var list []driver.Entry
		if what == "break" {
			for _, c := range o.Break(&q.model) {
				list = append(list, c.Entry(*d.now))
			}
			var broken []driver.Entry
			broken, err = s.Break(ctx, q.name)
			same(t, "broken", broken, list)
		} else {
			var got driver.Queue
			got, err = s.Inspect(ctx, q.name)
			looked := q.model // to look changes nothing that is kept
			looked.Claims = slices.Clone(looked.Claims)
			(&queue.Op{Now: *d.now, Drawn: queue.Undrawn}).Look(&looked)
			want := looked.View(q.name, *d.now)
			same(t, "claims", got.Claims, want.Claims)
			if looked.InUse() && (got.Kind != want.Kind || got.Limit != want.Limit || got.Declared != want.Declared) {
				t.Fatalf("%v, limit %d, declared %d; want %v, %d and %d", got.Kind, got.Limit, got.Declared, want.Kind, want.Limit, want.Declared)
			}
		}
	case "look":
		looked := q.model
		looked.Claims = slices.Clone(looked.Claims)
		d.op(from, deaf).Look(&looked)
		if c := looked.Find(id); c != nil && c.Mark == ref.Mark && (!c.Holding() || c.Lingering) {
			break // Wait would block
		}
		o.Look(&q.model)
		want = q.model.Status(id, q.model.State(ref), *d.now, time.Time{}, 0)
		got, err = d.other.Wait(ctx, ref)
		// Who asks is not told in addition; Look does not know who asks.
		o.Signals = slices.DeleteFunc(o.Signals, func(s queue.Signal) bool { return s.Kind == queue.Granted && s.Claim.ID == id })
	}
	sameError(t, what, err, wantErr)
	d.sameStatus(t, q, what, got, want)
	d.note(q, o, deaf)
	d.end(q)
}

// enterAll enters claims of all queues at once.
func (d *diff) enterAll(t *rapid.T, from int, s *redisstore.Store, deaf int) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	d.pass(t)
	var cs []driver.Claim
	for _, q := range d.queues {
		id := rapid.SampledFrom(diffIDs).Draw(t, "id") + d.run
		for q.left[id] > 0 { // see enter in step
			id = fmt.Sprint("claim--at-", *d.now)
		}
		cs = append(cs, d.claim(t, q, id, time.Second))
	}
	d.begin(d.queues[:]...)
	es := make([]*queue.Entering, len(cs))
	var before [len(d.queues)]queue.Queue
	for i, q := range d.queues {
		es[i] = &queue.Entering{Op: d.op(from, deaf), Queue: &q.model, Claim: cs[i]}
		es[i].Drawn = d.noSpare // also what is only tried
		before[i] = q.model
		before[i].Claims = slices.Clone(q.model.Claims)
	}
	sent := time.Now()
	wantErr := queue.EnterAll(es)
	got, err := s.EnterAll(ctx, cs)
	sameError(t, "enter all", err, wantErr)
	for i, q := range d.queues {
		d.note(q, es[i].Op, deaf)
		for k := range q.model.Claims {
			c := &q.model.Claims[k]
			if old := before[i].Find(c.ID); c.Holding() && (old == nil || old.Token != c.Token) {
				d.drawn(q, c)
			}
		}
		d.end(q)
		if err == nil {
			d.sameStatus(t, q, "enter all", got[i], es[i].Status(sent))
		}
	}
}

func (d *diff) pass(t *rapid.T) {
	*d.now += rapid.SampledFrom([]int64{0, 1, 1, 1000, 60_000, 150_000, 400_000, 61_000_000, -1000, -3_000_000}).Draw(t, "pass")
}

func (d *diff) op(from, deaf int) *queue.Op {
	return &queue.Op{
		Now: *d.now, Session: strconv.Itoa(from),
		Reachable: func(c *queue.Claim) bool { return c.Session != strconv.Itoa(deaf) },
	}
}

// kind draws one, mostly that of the queue.
func (d *diff) kind(t *rapid.T, q *diffQueue) driver.Kind {
	if q.model.InUse() && rapid.IntRange(0, 9).Draw(t, "same kind") > 0 {
		return q.model.Kind
	}
	return rapid.SampledFrom([]driver.Kind{driver.KindMutex, driver.KindRW, driver.KindSemaphore, driver.KindElection, driver.KindParty}).Draw(t, "kind")
}

// claim draws one, mostly with a limit that is right.
func (d *diff) claim(t *rapid.T, q *diffQueue, id string, ttl time.Duration) driver.Claim {
	limit := d.limit
	if q.model.InUse() {
		limit = rapid.SampledFrom([]int64{q.model.Limit, q.model.Limit, cmp.Or(q.model.Declared, q.model.Limit)}).Draw(t, "limit")
	}
	c := driver.Claim{
		Name: q.name, ID: id, Kind: d.kind(t, q), TTL: ttl, Limit: limit,
		Units:    rapid.Int64Range(1, limit).Draw(t, "units"),
		Overtake: rapid.IntRange(0, 3).Draw(t, "overtake") == 0,
		Owner:    driver.Owner{Label: "a \"\\ ü 'x'", Host: "h", PID: 7},
	}
	if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
		c.Limit++
	}
	return c
}

func sameError(t *rapid.T, what string, err, want error) {
	l, ok := errors.AsType[*driver.MismatchError](err)
	w, _ := want.(*driver.MismatchError)
	if ok && w != nil && l.Have == w.Have && l.Want == w.Want && l.Units == w.Units && l.HaveKind == w.HaveKind && l.WantKind == w.WantKind {
		return
	}
	if err != nil || want != nil {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// bars lets the server forget that the claim has left, once its time is up: the server's
// own time has not passed.
func (d *diff) bars(ctx context.Context, t *rapid.T, q *diffQueue, id string) {
	if q.left[id] == 0 || q.left[id] > *d.now {
		return
	}
	if err := d.c.Do(ctx, d.c.B().Del().Key("pawl:{"+q.name+"}:"+id).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	q.left[id] = 0
}

// note notes what others are to be told.
func (d *diff) note(q *diffQueue, o *queue.Op, deaf int) {
	for _, sig := range o.Signals {
		to, _ := strconv.Atoi(sig.Claim.Session)
		if to == deaf {
			continue
		}
		text := ""
		switch sig.Kind {
		case queue.Granted:
			alone := 0
			if sig.Claim.Alone {
				alone = 1
			}
			text = fmt.Sprintf("g %s %d %d %d", sig.Claim.ID, sig.Claim.Token, q.waiting(), alone)
		case queue.Wanted:
			text = "w " + sig.Claim.ID
		case queue.Broken, queue.Adopted:
			text = "b " + sig.Claim.ID
		}
		d.told[to] = append(d.told[to], text)
	}
}

func (q *diffQueue) waiting() (n int) {
	for i := range q.model.Claims {
		if !q.model.Claims[i].Holding() {
			n++
		}
	}
	return n
}

func (d *diff) sameStatus(t *rapid.T, q *diffQueue, what string, got, want driver.Status) {
	gb, wb := got.Blocker, want.Blocker
	gr := got.Recheck
	if gr.IsZero() != want.Recheck.IsZero() {
		t.Fatalf("%s: looks again at %v, want %v", what, gr, want.Recheck)
	}
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
	c := q.model.Find(gb.ID)
	if c == nil || !c.Holding() || *gb != c.Entry(*d.now) || len(q.model.Claims)-q.waiting() == 1 && *gb != *wb {
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
func (d *diff) compare(t *rapid.T, q *diffQueue) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	key := "pawl:{" + q.name + "}"
	h := make(map[string]string)
	text, err := d.c.Do(ctx, d.c.B().Get().Key(key).Build()).ToString()
	if f := strings.SplitN(text, " ", 9); err == nil && len(f) == 9 { // see unfold in head.lua
		token, _ := strconv.ParseInt(f[0], 10, 64)
		ttl, _ := strconv.ParseInt(f[1], 10, 64)
		h["s"] = fmt.Sprintf("%d %d %s %s %s 0 0 1 %d 0 %s", token, token+ttl+60e6, f[3], f[5], f[4], token+ttl, f[2])
		h[f[2]] = fmt.Sprintf("%s %s 0 %d %d %d %d 1 %d - %s %s", f[4], f[6], token, ttl, token, token, token, f[7], f[8])
	} else if h, err = d.c.Do(ctx, d.c.B().Hgetall().Key(key).Build()).AsStrMap(); err != nil {
		t.Fatal(err)
	}
	waits, err := d.c.Do(ctx, d.c.B().Zrange().Key(key+":q").Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	if !q.model.InUse() {
		if len(h)+len(waits) > 0 {
			t.Fatalf("kept: %v, %v; want nothing", h, waits)
		}
		return
	}
	var state [10]int64 // last x limit used n o seq min d
	f := strings.SplitN(h["s"], " ", 11)
	if len(f) < 11 || f[2] != string(q.model.Kind) {
		t.Fatalf("kept: %v, want kind %v", h, q.model.Kind)
	}
	for i, text := range slices.Concat(f[:2], f[3:10]) {
		if state[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatalf("kept: %v: %v", h, err)
		}
	}
	type kept struct {
		seq  int64
		text string
	}
	var have []kept
	for id, text := range h {
		if len(id) < 8 {
			continue
		}
		f := strings.SplitN(text, " ", 12)
		n := make([]int64, len(f))
		for i := range f {
			n[i], _ = strconv.ParseInt(f[i], 10, 64)
		}
		have = append(have, kept{n[7], fmt.Sprintf("%s %d %d %d %d %d %d %s %s", id, n[3]+n[4], n[2], n[5], n[6], n[0], n[8], f[1], f[9])})
	}
	sort.Slice(have, func(i, k int) bool { return have[i].seq < have[k].seq })
	var got, want, wantWaits []string
	for _, k := range have {
		got = append(got, k.text)
	}
	var used, over int64
	var first, latest int64
	for i := range q.model.Claims {
		c := &q.model.Claims[i]
		flags := ""
		if c.Overtake {
			flags += "o"
		}
		if c.Alone {
			flags += "a"
		}
		if c.Lingering {
			flags += "l"
		}
		want = append(want, fmt.Sprintf("%s %d %d %d %d %d %d %s- %s", c.ID, c.Expires, c.Used, c.Granted, c.Token, c.Units, c.Arrived, flags, cmp.Or(c.Mark, "-")))
		if c.Holding() {
			used += c.Units
		} else {
			wantWaits = append(wantWaits, c.ID)
			if c.Overtake {
				over++
			}
		}
		latest = max(latest, c.Expires)
		if first == 0 || c.Expires < first {
			first = c.Expires
		}
	}
	if !slices.Equal(got, want) || !slices.Equal(waits, wantWaits) {
		t.Fatalf("kept:\n%q\n%q, want\n%q\n%q", got, waits, want, wantWaits)
	}
	if state[0] != q.model.Last || state[3] != used || state[4] != int64(len(wantWaits)) || state[5] != over || state[8] != q.model.Declared {
		t.Fatalf("kept: %v, want last %d, used %d, n %d, o %d, d %d", h, q.model.Last, used, len(wantWaits), over, q.model.Declared)
	}
	left, err := d.c.Do(ctx, d.c.B().Pttl().Key(key).Build()).AsInt64()
	if err != nil || (left < 0) != (q.model.Declared != 0) {
		t.Fatalf("kept: %v for %d ms, %v; for ever is right only while SetLimit has declared another limit, now %d", h, left, err, q.model.Declared)
	}
	if len(want) == 0 && (state[6] != 0 || state[7] != 0) {
		t.Fatalf("kept: %v, but the queue is empty", h)
	}
	if state[2] != q.model.Limit || len(want) > 0 && (state[7] > first || state[1] < latest+2e6) {
		t.Fatalf("kept: %v, want limit %d, min up to %d, x two seconds more than %d", h, q.model.Limit, first, latest)
	}
}

// isLone reports whether the name has one claim, which nothing has happened to since it came:
// see machine.lua.
func (d *diff) isLone(t *rapid.T, q *diffQueue) bool {
	kind, err := d.c.Do(context.Background(), d.c.B().Type().Key("pawl:{"+q.name+"}").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	return kind == "string"
}

// compareMark reads the mark of all names.
func (d *diff) compareMark(t *rapid.T) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	got, err := d.c.Do(ctx, d.c.B().Get().Key("pawl:mark").Build()).ToString()
	if err != nil && !client.IsRedisNil(err) {
		t.Fatal(err)
	}
	want := ""
	if d.written {
		want = fmt.Sprint(d.high, " ", d.timely)
	}
	if got != want {
		t.Fatalf("the mark is %q, want %q", got, want)
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
