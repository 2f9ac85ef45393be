// Package driver is the contract between pawl and the engines it runs on.
//
// Users of locks need package pawl and one store; they never call this
// package. It is for people who write a store, and for the packages that sit
// between (a quorum of stores, an observer). A store is accepted when it
// passes the conformance suite in package drivertest.
//
// # The model
//
// For every name a store keeps a queue of claims in order of arrival, and
// applies four rules atomically, by its own clock:
//
//   - R1 expire: claims whose TTL has run out are removed first, on every
//     operation.
//   - R2 grant: in order of arrival, each waiting claim is granted while
//     used + units <= limit; the first that does not fit ends the scan. A
//     claim marked Overtake may be granted past waiting ones.
//   - R3 token: drawn when a claim is granted, greater than every token that
//     was or may have been used for this name before.
//   - R4 leave: removing a claim, waiting or holding, grants to those behind
//     it in the same step.
//
// Being granted does not lengthen a claim's life: only a request of its owner
// does. So a dead waiter costs the others one TTL, counted from its last sign
// of life, even when it is granted the lock in between; and its owner knows
// its deadline without having seen the grant happen.
//
// docs/STORES.md tells how to write a store. One that can load, change and save a
// small document in one step can use internal/queue, which is these rules and
// nothing else.
package driver

import (
	"context"
	"iter"
	"time"
)

// Store keeps queues of claims, and records. All methods may be called from
// several goroutines at once.
//
// An error means that the outcome is unknown, unless it is one of this
// package's errors: the request may have been carried out, now or later.
// Every method may be repeated after an error. Errors that repeating cannot
// mend (wrong password, missing permission) are marked with [Permanent].
//
// A store renews nothing by itself, and starts no goroutine per held claim.
type Store interface {
	// Enter puts c at the end of its name's queue and grants what fits.
	// If a claim with this ID is in the queue already, it is renewed (see
	// Renew) and its status returned, so a lost reply is repeated safely. If
	// that claim was adopted since, it is Gone for whoever repeats its Enter.
	//
	// With c.Try the claim holds at once or stays out (Refused).
	// A queue in use has one kind and one limit: another one is a *MismatchError;
	// see SetLimit. A queue is in use while it has claims, or a limit that
	// SetLimit has changed. A queue that has no room for one more claim in this
	// engine is ErrFull.
	Enter(ctx context.Context, c Claim) (Status, error)

	// Wait blocks until the status of a waiting claim may have changed, and
	// returns that status; it may return early with the status unchanged. It
	// renews nothing: Status.Deadline and Recheck are zero. The caller bounds
	// it by ctx and renews the claim meanwhile; it must not rely on Wait alone
	// to learn of a grant, for wake-ups can be lost.
	Wait(ctx context.Context, r Ref) (Status, error)

	// Adopt takes over a holding claim from its owner, in one step: it gets the
	// mark, the owner and the TTL of a, also if it had more, and a token greater than
	// a.Token and every token used before. From then on a request with the mark
	// it had changes nothing and is told Gone, however late or often it comes.
	//
	// a.Token must be the one that was handed over: not less than the claim's
	// and the highest Used that the store was told, and not above what can
	// exist, the claim's plus its spare ones. Otherwise, or if the claim has
	// other units, it is Refused with the holder as Blocker, and unchanged: so of
	// two adopters one wins. A claim that is not there, only waits, or lingers is
	// Gone. A queue of another kind is a *MismatchError.
	//
	// An owner that listens is told (Check) that its claim is another's.
	//
	// A repeated Adopt, with the mark that the claim has by now, renews it and
	// returns its status.
	Adopt(ctx context.Context, a Adoption) (Status, error)

	// Renew gives each claim r.TTL from now, or leaves it what it has if that is
	// more: requests with different TTLs may arrive in another order than their
	// replies. It calls report once for each index of rs before it returns,
	// possibly from several goroutines at once, as soon as the reply for that
	// claim is there: a node that does not reply must not delay the others'
	// claims. A claim that is not in the queue is Gone, and is not created again.
	Renew(ctx context.Context, rs []Ref, report func(i int, s Status, err error))

	// Leave removes a claim, waiting or holding, and returns its state until
	// then: Gone if it was not there.
	//
	// With r.Linger above zero a holding claim stays for that long, counted
	// from now, without an owner: renewing or entering it returns Gone, leaving
	// it again changes nothing, and the end of its client does not end it.
	Leave(ctx context.Context, r Ref) (State, error)

	// Resize changes the units of a holding claim: to less always, to more
	// only if that fits now (Refused, and unchanged, otherwise). Growing draws
	// a new token. A request with an r.Used that is not 0 and less than the
	// claim's token is older than its last growth: it comes too late, changes
	// nothing, and returns the status.
	Resize(ctx context.Context, r Ref, units int64) (Status, error)

	// Break removes all holding claims of a name, whoever owns them, and
	// returns what they were. Owners that listen are told at once. One that is
	// not told may use its spare tokens until its deadline: the next token is
	// greater than those, too.
	Break(ctx context.Context, name string) ([]Entry, error)

	// SetLimit changes the limit of a name for all, also while nobody claims it,
	// until it is set again, and leaves its kind: another kind is a *MismatchError.
	// Claims that declare the limit of before the first change, or the one in force,
	// are entered with limit. was is the limit that the caller declares; if that is
	// neither of the two, and the queue is in use or was changed before, it is a
	// *MismatchError. Setting it back to what was declared ends the change.
	//
	// Waiting claims that fit now are granted. Holders stay, even if they are
	// too many now. Waiting claims for more units than the limit keep their
	// places without blocking others; new ones are a *MismatchError.
	SetLimit(ctx context.Context, name string, kind Kind, was, limit int64) error

	// Ask tells the holders that listen that they are wanted, as if somebody had
	// begun to wait. It is a hint like every notice.
	Ask(ctx context.Context, name string) error

	// Inspect returns the queue of a name; without claims if there is none.
	// It writes nothing, and leaves out what has run out.
	Inspect(ctx context.Context, name string) (Queue, error)

	// List yields every queue that has claims and whose name starts with
	// prefix, in no particular order, each as of the moment it was read. It
	// writes nothing, reads many names with one request, and yields as it reads.
	// A name that cannot be read is yielded with a *NameError, and the list goes
	// on; any other error ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Queue, error]

	// Listen calls f for notices about claims that were entered or renewed
	// through this Store value, until ctx ends or the store is closed. It begins
	// with a Check without ID, as soon as notices can come: what happened before
	// was not noticed. Notices are hints: they may be lost, late or repeated. f
	// must not block. A store that cannot push returns ErrUnsupported.
	Listen(ctx context.Context, f func(Notice)) error

	// Load returns the record of that name; Version 0 if there is none.
	Load(ctx context.Context, name string) (Record, error)

	// CompareAndSwap writes r.Value if the stored version is r.Version
	// (0: there is none), and returns the record with its new version, which
	// no earlier record of this name had. A nil Value deletes. Otherwise it
	// returns the record that is there, and ErrConflict. With r.TTL above zero
	// the record vanishes that long after the write.
	CompareAndSwap(ctx context.Context, r Record) (Record, error)

	// WaitChange blocks until the record's version may be another than
	// version, and returns the record that is there then.
	WaitChange(ctx context.Context, name string, version int64) (Record, error)

	// Close ends every call under way with ErrClosed and releases what the
	// store opened. Claims stay until they run out, unless the engine ties
	// them to the connection.
	Close() error
}

// AllEnterer is a Store that can enter claims of several names in one step. It
// is optional: pawl enters them one after the other where it is not there.
type AllEnterer interface {
	// EnterAll enters claims of different names as Enter does with Try, but all
	// or none: if one does not fit, none is entered, and all statuses are
	// Refused, with a Blocker for those that do not fit. Claims that are in
	// their queues already are renewed, whatever becomes of the others.
	// ErrUnsupported: these names cannot be entered in one step.
	EnterAll(ctx context.Context, cs []Claim) ([]Status, error)
}

// Kind is the synchronizer that a claim or a record belongs to. A queue is of one
// kind: claims that exclude each other in one kind need not do so in another.
type Kind byte

// The values are what stores write down.
const (
	KindMutex     Kind = 'm'
	KindRW        Kind = 'r'
	KindSemaphore Kind = 's'
	KindElection  Kind = 'e'
	KindParty     Kind = 'p' // those who wait at a barrier

	// These have records, and no queues.
	KindLatch   Kind = 'l'
	KindBarrier Kind = 'b'
	KindOnce    Kind = 'o'
)

// Claim is one request for units of a name.
type Claim struct {
	Name     string
	ID       string        // random; see NewID
	Kind     Kind          // of the queue
	Units    int64         // 1 to Limit
	Limit    int64         // of the queue
	TTL      time.Duration // how long the store keeps a claim that nobody renews
	Overtake bool          // may be granted past waiting claims
	Try      bool          // hold at once or stay out
	Owner    Owner         // for people
}

// Ref names a claim that was entered. A request with another mark than the claim's
// gets Gone.
type Ref struct {
	Name string
	ID   string
	// Mark is that of the claim's owner: empty for the client that entered it,
	// what Adopt brought for the one that adopted it last.
	Mark string
	TTL  time.Duration // Renew: the time to live from now
	// Used is the highest token used under this claim (see Status.Spare);
	// 0 means Status.Token. On Leave the next token follows it. What is above
	// the claim's spare tokens counts as the last of those.
	Used   int64
	Linger time.Duration // Leave: how long the name stays taken
	// HandOver, of a Renew, counts how often the owner has changed its mind since it
	// has the claim: while it is odd, the owner gives the claim up for another to
	// adopt. Where claims end with their client, this one does not then: it stays for
	// its TTL. A request with a lower count than the store has seen comes late, and
	// changes nothing of that.
	HandOver int64
}

// Adoption asks for a claim of another owner.
type Adoption struct {
	Name  string
	ID    string
	Kind  Kind
	Units int64  // that the claim has
	Token int64  // that was handed over
	Mark  string // of the owner from now on: random; see NewID
	TTL   time.Duration
	Owner Owner
}

// State of a claim.
type State uint8

const (
	Gone    State = iota // not in the queue: never entered, left, run out, or broken
	Waiting              // in the queue, not granted
	Holding              // granted
	Refused              // did not fit: not entered (Try), or not resized
)

func (s State) String() string {
	return [...]string{"gone", "waiting", "holding", "refused"}[s&3]
}

// Status of a claim.
type Status struct {
	State State

	// Token of the grant, while Holding.
	Token int64
	// Spare says how many tokens after Token the holder may use for grants of
	// its own, without asking, at one per microsecond since the grant at the
	// most: a store that draws tokens from its clock counts on that. It is 0
	// where a claim can hold beside others.
	Spare int64

	// Deadline is when the claim ends by the local monotonic clock unless it
	// is renewed; see [Deadline]. Zero if the call renewed nothing.
	Deadline time.Time

	// Recheck, while Waiting, is the local time at which a claim in front, holding or
	// waiting, may have run out; the owner renews its own claim then. It is zero for
	// claims that are not among the first Front that wait, for which the heartbeat is
	// enough, and where the engine itself wakes those behind a claim that runs out.
	Recheck time.Time

	// Ahead counts the waiting claims in front of a waiting one, Behind those
	// that wait behind a holding one. In a crowd Renew may report what they were
	// some time ago.
	Ahead, Behind int

	// Blocker is a holder that stands in the way, if Waiting or Refused.
	Blocker *Entry
}

// Owner says who holds or waits. It is for people: nothing depends on it.
type Owner struct {
	Label string `json:"label,omitempty"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
}

// Entry is a claim as others see it. Spans are by the store's clock.
type Entry struct {
	ID    string
	State State // Waiting or Holding
	Units int64
	Token int64 // the highest known to be used; while Holding. 0: it is not drawn yet
	Owner Owner
	Age   time.Duration // since arrival
	Held  time.Duration // since the grant
	TTL   time.Duration // left
	// Lingering: the owner has left, the name stays taken for the rest of TTL.
	Lingering bool
}

// Queue is what Inspect and List return.
type Queue struct {
	Name  string
	Kind  Kind // while it is in use
	Limit int64
	// Declared is what claims ask for, where SetLimit has made the limit
	// another; else 0.
	Declared int64
	Claims   []Entry // in order of arrival
}

// NoticeKind says what a notice is about.
type NoticeKind uint8

const (
	// Check: something happened to the claim, or, without an ID, may have
	// happened to any claim (a connection was made anew): renew to see.
	Check NoticeKind = iota
	// Wanted: somebody began to wait for what this claim holds.
	Wanted
	// Granted: the claim waited, and holds now. Status is what Wait returns, too: this
	// is the shorter way, for stores that are told of grants.
	Granted
)

// Notice is a hint about a claim.
type Notice struct {
	Kind   NoticeKind
	ID     string
	Status Status // Granted
}

// Record is a value with a version.
type Record struct {
	Name    string
	Value   []byte // nil: there is none
	Version int64  // 0: there is none
	TTL     time.Duration
}

// Deadline is the local instant at which a claim ends whose request was sent
// at sent and gave it ttl: less 1 % of the TTL and 2 ms, for clocks that do
// not run equally fast. The store's TTL starts later than sent, so the holder
// stops believing before the store does.
func Deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - ttl/100 - 2*time.Millisecond)
}
