package zkstore

import (
	"errors"
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

var errTokens = driver.Permanent(errors.New("the tokens are used up: so many elections there were since the data was begun"))

// checkZxid refuses transactions for which no token is left: it never wraps.
func checkZxid(zxid int64) error {
	if zxid < 0 || zxid>>32 > maxElections {
		return errTokens
	}
	return nil
}

// account moves the spare tokens of claims that were granted all units from
// package queue's hands, which counts in microseconds, to here: they are drawn
// with the grant. It returns which claims those are.
//
// Invariant: q.Last is above every token that the owner of a claim in q may use,
// and no claim in q is marked as alone, before and after each operation.
func account(q *queue.Queue) (alone map[string]bool) {
	alone = make(map[string]bool)
	for i := range q.Claims {
		c := &q.Claims[i]
		if c.Alone {
			alone[c.ID] = true
			q.Last = max(q.Last, c.Token+spare)
			c.Alone = false
		}
	}
	return alone
}
