package driver

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Node is a Store that can be one of those that package quorum makes one store of.
// It is optional.
//
// What a majority of nodes has granted counts as long as they remember it. So a node
// knows whether it has kept its memory: all that it ever promised. The mark of that is
// an epoch, which is kept with the data and is lost when they are lost, or when the
// engine was started again and cannot be sure. A node without one has its data as
// far as they are there, renews claims and lets them leave, but does not vote.
type Node interface {
	Store

	// Vote is Enter for one of a quorum: it differs in the tokens, and it proves
	// that the node still has the memory of v.Epoch. If that is not so, nothing is
	// changed, and the error is an *EpochError.
	//
	// A claim that is granted gets a token that is v.Floor at the least, and one that
	// holds has v.Token at the least from then on; both are above the mark with which
	// the node was admitted (see Admission). The next token is greater than these.
	// They have no spare ones.
	Vote(ctx context.Context, v Vote) (Status, error)

	// Withdraw takes a vote back: it removes the claim if it holds with exactly
	// that token, or, with token 0, if it waits. It returns the state that the
	// claim has then: Gone, or what it has by a later vote. So a Withdraw that comes
	// late, or twice, takes nothing away that was granted since.
	Withdraw(ctx context.Context, name, id string, token int64) (State, error)

	// Memory returns what the node remembers.
	Memory(ctx context.Context) (Memory, error)

	// Quarantine begins a time of d in which a node without memory does not vote, so that
	// all that was granted before runs out. If the node has its memory, or such a time
	// has begun, nothing is changed. It returns what holds then.
	Quarantine(ctx context.Context, d time.Duration) (Memory, error)

	// Remember lets a node that has no memory vote from now on. If the
	// quarantine that a names is not the node's, or is not over yet (see
	// Admission.AtOnce), nothing is changed. It returns what holds then.
	Remember(ctx context.Context, a Admission) (Memory, error)
}

// Vote is what a node is asked for.
type Vote struct {
	Claim
	Floor int64  // the least token of a new grant
	Token int64  // the least token from now on, if the claim holds; 0: as it is
	Epoch string // of the memory that the caller counts on
}

// Memory is what a node remembers.
type Memory struct {
	Epoch string // of the memory; "": it was lost, or there never was one
	// Mark is no less than any token that the node has drawn or was told of, for any name,
	// as far as it remembers.
	Mark int64
	// Quarantine names the one that has begun since the memory was lost; "" if
	// none has. Left is how long it still lasts, by the node's clock.
	Quarantine string
	Left       time.Duration
}

// Admission ends a quarantine.
//
// The order decides: the quarantine was over, THEN the marks of the others were
// read. So what was granted with votes of the lost memory is over, or the others
// know of it. Quarantine is named, since the node may have lost its memory again
// after the marks were read.
type Admission struct {
	Quarantine string // that was seen to be over
	Epoch      string // of the memory from now on
	Mark       int64  // all tokens from now on are greater
	// AtOnce: the quarantine need not be over. It is for operators who know that
	// nobody holds anything.
	AtOnce bool
}

// maxToken bounds the tokens that a quorum may ask for: far beyond every clock, and
// well below 2^53, to which engines may count.
const maxToken = int64(1) << 52

const maxEpoch = 120

// Check returns what is wrong with the vote, wrapped in ErrInvalid.
func (v *Vote) Check() error {
	if err := v.Claim.Check(); err != nil {
		return err
	}
	if err := checkToken("floor", v.Floor); err != nil {
		return err
	}
	if err := checkToken("token", v.Token); err != nil {
		return err
	}
	return checkEpoch("epoch", v.Epoch)
}

// Check returns what is wrong with the admission, wrapped in ErrInvalid.
func (a *Admission) Check() error {
	if err := checkToken("mark", a.Mark); err != nil {
		return err
	}
	if err := checkEpoch("quarantine", a.Quarantine); err != nil {
		return err
	}
	return checkEpoch("epoch", a.Epoch)
}

// CheckWithdrawal returns what is wrong with the arguments of Withdraw, wrapped in
// ErrInvalid.
func CheckWithdrawal(name, id string, token int64) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := CheckID(id); err != nil {
		return err
	}
	return checkToken("token", token)
}

func checkToken(what string, token int64) error {
	if token < 0 || token > maxToken {
		return fmt.Errorf("%w %s %d: allowed are 0 to %d", ErrInvalid, what, token, maxToken)
	}
	return nil
}

func checkEpoch(what, s string) error {
	if s == "" || len(s) > maxEpoch || strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.ContainsRune(".-_", c))
	}) {
		return fmt.Errorf("%w %s %q: allowed are 1 to %d letters, digits and . - _", ErrInvalid, what, s, maxEpoch)
	}
	return nil
}

// EpochError says that a node has not the memory that a vote counts on.
type EpochError struct {
	Want string
	Have string // "": the node has none
}

func (e *EpochError) Error() string {
	if e.Have == "" {
		return "the node has lost its memory"
	}
	return fmt.Sprintf("the node has lost its memory of epoch %s, and has that of %s since", e.Want, e.Have)
}
