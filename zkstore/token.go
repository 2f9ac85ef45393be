package zkstore

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// Tokens are numbers on one line: the base, which is when the data was begun,
// then block numbers for each transaction. A change of a queue that is written by
// transaction z draws its tokens from z's block or earlier ones, or goes on after
// those of the list, and ends before the block of z+2: it grants all units at most
// three times (claims that died, one that was taken along, one that leaves), which
// takes three halves of a block and three, and its other grants are fewer than
// the claims that fit into a node. So whatever comes later is greater, also in a
// queue that was deleted and made anew: which takes a transaction to delete it, and
// another to make it.
//
// The list of claims counts its tokens from the block of the transaction that
// created it, for that is unknown when it is written: 1 is its first.
const (
	block = int64(1) << 13
	// spare is what an owner that holds alone may use after its token. The list
	// goes on after those from the start.
	spare = block / 2

	maxElections = int64(1) << 17
)

// at is where the block of a transaction begins, after the base.
func at(zxid int64) int64 {
	return (zxid>>32)<<32*block + (zxid&(1<<32-1))*block
}

// baseOf is the base for data that was begun at that time in milliseconds.
func baseOf(ctime int64) int64 {
	begun := time.UnixMilli(ctime).Sub(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	return max(1, int64(begun)) // a clock before 2020 is wrong anyway
}

var errTokens = driver.Permanent(errors.New("zookeeper: the tokens are used up: so many elections there were since the data was begun"))

// checkZxid refuses transactions for which no token is left: it never wraps.
func checkZxid(zxid int64) error {
	if zxid < 0 || zxid>>32 > maxElections {
		return errTokens
	}
	return nil
}

// used is the highest token that was used under the claim, in the list's
// numbers: no more than its owner may use.
func (t *turn) used(r driver.Ref) int64 {
	used := t.relative(r.Used)
	if c := t.q.Find(r.ID); c != nil && c.Holding() && t.mutex() {
		used = min(used, c.Token+spare)
	}
	return used
}

// count notes the tokens that were drawn so far.
func (t *turn) count() {
	t.last = t.q.Last
	t.tokens = make(map[string]int64, len(t.q.Claims))
	for i := range t.q.Claims {
		t.tokens[t.q.Claims[i].ID] = t.q.Claims[i].Token
	}
}

// settle puts the tokens right that a step of the turn has drawn: who was promised
// one gets that. And it moves the spare tokens of claims that were granted all
// units from package queue's hands, which counts in microseconds, to here: they
// are drawn with the grant.
//
// Invariant: q.Last is above every token that the owner of a claim in q may use,
// or a claim that was promised one and is gone may have used, and no claim in q is
// marked as alone, before and after each step.
//
// Invariant: who was promised a token gets no other. Promises rise in order of
// arrival, with room for the spare tokens of each; only mutexes are promised
// them, whose units are one, so nobody overtakes them, also if the limit is set to
// another later; and who came before them without a promise held already.
func (t *turn) settle() {
	last := t.last
	next := int64(0) // the promise of the first one that has waited and is there
	for i := range t.q.Claims {
		c := &t.q.Claims[i]
		if m := t.l.More[c.ID]; next == 0 && m != nil && t.tokens[c.ID] == 0 && m.Promise > 0 {
			next = m.Promise
		}
	}
	for id, token := range t.tokens {
		m := t.l.More[id]
		if m != nil && token == 0 && t.q.Find(id) == nil && m.Promise > 0 && (next == 0 || m.Promise < next) {
			last = max(last, m.Promise+spare) // those behind the next one cannot have held
		}
	}
	var drawn []*queue.Claim
	for i := range t.q.Claims {
		if c := &t.q.Claims[i]; c.Holding() && c.Token != t.tokens[c.ID] {
			drawn = append(drawn, c)
		}
	}
	slices.SortFunc(drawn, func(a, b *queue.Claim) int { return cmp.Compare(a.Token, b.Token) })
	for _, c := range drawn {
		m := t.l.More[c.ID]
		if m != nil && t.tokens[c.ID] == 0 && m.Promise > last {
			c.Token = m.Promise
		} else {
			c.Token = max(c.Token, last+1)
			if t.v != nil && t.v.found && !t.v.dead() {
				t.l.Drawn = max(t.l.Drawn, c.Token+spare)
			}
		}
		last = c.Token
		if c.Alone {
			t.alone[c.ID] = true
			if m != nil {
				m.Alone = true
			}
			last += spare
			c.Alone = false
		}
	}
	if len(drawn) == 0 {
		last = max(last, t.q.Last)
	}
	t.q.Last = last
	t.count()
}
