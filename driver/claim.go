package driver

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a claim may ask for.
const (
	MaxName        = 512 // bytes
	MaxLabel       = 128 // bytes
	MinTTL         = 100 * time.Millisecond
	MaxTTL         = 7 * 24 * time.Hour
	MaxLimit int64 = 1 << 31
	// Front is how many waiting claims look for themselves whether a claim in front has
	// run out; see Status.Recheck. One would do, the others are for the case that it is
	// gone.
	Front = 8
	minID = 8
	maxID = 64
)

// NewID makes a random claim id: 26 characters, 130 bits.
func NewID() string { return rand.Text() }

// CheckName returns what is wrong with a name, wrapped in ErrInvalid: 1 to
// MaxName bytes of UTF-8 without control characters and braces.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w name: it is empty; allowed are 1 to %d bytes", ErrInvalid, MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("%w name %.20q…: %d bytes; allowed are 1 to %d", ErrInvalid, name, len(name), MaxName)
	}
	if err := checkText("name", name); err != nil {
		return err
	}
	if strings.ContainsAny(name, "{}") {
		return fmt.Errorf("%w name %q: braces are not allowed", ErrInvalid, name)
	}
	return nil
}

// CheckTTL returns what is wrong with a time to live, wrapped in ErrInvalid.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w TTL %v: allowed are %v to %v", ErrInvalid, ttl, MinTTL, MaxTTL)
	}
	return nil
}

// Check returns what is wrong with the claim, wrapped in ErrInvalid. Stores
// call it before they do anything.
func (c *Claim) Check() error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	if err := CheckID(c.ID); err != nil {
		return err
	}
	if err := c.Kind.Check(); err != nil {
		return err
	}
	if err := CheckTTL(c.TTL); err != nil {
		return err
	}
	if err := CheckLimit(c.Limit); err != nil {
		return err
	}
	if err := CheckUnits(c.Units); err != nil {
		return err
	}
	if c.Units > c.Limit {
		return fmt.Errorf("%w units %d: allowed are 1 to the limit, %d", ErrInvalid, c.Units, c.Limit)
	}
	return CheckLabel(c.Owner.Label)
}

// CheckAll returns what is wrong with the claims of an EnterAll: each by
// itself, or two of one name.
func CheckAll(cs []Claim) error {
	names := make(map[string]bool, len(cs))
	for i := range cs {
		if err := cs[i].Check(); err != nil {
			return err
		}
		if names[cs[i].Name] {
			return fmt.Errorf("%w names: %q is there twice", ErrInvalid, cs[i].Name)
		}
		names[cs[i].Name] = true
	}
	return nil
}

// Check returns what is wrong with the adoption, wrapped in ErrInvalid. Stores
// call it before they do anything.
func (a *Adoption) Check() error {
	if err := CheckName(a.Name); err != nil {
		return err
	}
	if err := CheckID(a.ID); err != nil {
		return err
	}
	if err := checkMark(a.Mark); err != nil {
		return err
	}
	if err := a.Kind.Check(); err != nil {
		return err
	}
	if err := CheckUnits(a.Units); err != nil {
		return err
	}
	if a.Token < 1 {
		return fmt.Errorf("%w token %d: allowed are 1 and more", ErrInvalid, a.Token)
	}
	if err := CheckTTL(a.TTL); err != nil {
		return err
	}
	return CheckLabel(a.Owner.Label)
}

// Check returns what is wrong with the name, the id, the mark and Linger, wrapped
// in ErrInvalid. Stores call it before they do anything; the TTL concerns Renew
// alone, see CheckTTL.
func (r *Ref) Check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if err := CheckID(r.ID); err != nil {
		return err
	}
	if r.Mark != "" {
		if err := checkMark(r.Mark); err != nil {
			return err
		}
	}
	if r.Linger < 0 || r.Linger > MaxTTL {
		return fmt.Errorf("%w linger %v: allowed are 0 to %v", ErrInvalid, r.Linger, MaxTTL)
	}
	return nil
}

// Check returns what is wrong with the record's name and TTL, wrapped in
// ErrInvalid. Stores call it before they do anything.
func (r *Record) Check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if r.TTL < 0 || r.TTL > MaxTTL {
		return fmt.Errorf("%w TTL %v of a record: allowed are 0 (for ever) to %v", ErrInvalid, r.TTL, MaxTTL)
	}
	return nil
}

// CheckLabel returns what is wrong with a label, wrapped in ErrInvalid.
func CheckLabel(label string) error {
	if len(label) > MaxLabel {
		return fmt.Errorf("%w label %.20q…: %d bytes; allowed are up to %d", ErrInvalid, label, len(label), MaxLabel)
	}
	return checkText("label", label)
}

// CheckUnits returns what is wrong with a number of units, wrapped in
// ErrInvalid.
func CheckUnits(units int64) error {
	if units < 1 || units > MaxLimit {
		return fmt.Errorf("%w units %d: allowed are 1 to %d", ErrInvalid, units, MaxLimit)
	}
	return nil
}

// CheckLimit returns what is wrong with a limit, wrapped in ErrInvalid.
func CheckLimit(limit int64) error {
	if limit < 1 || limit > MaxLimit {
		return fmt.Errorf("%w limit %d: allowed are 1 to %d", ErrInvalid, limit, MaxLimit)
	}
	return nil
}

// kinds are the kinds by their names.
var kinds = [...]struct {
	kind  Kind
	name  string
	queue bool // there are queues of it
}{
	{KindMutex, "mutex", true}, {KindRW, "rwmutex", true}, {KindSemaphore, "semaphore", true}, {KindElection, "election", true},
	{KindParty, "party", true}, {KindLatch, "latch", false}, {KindBarrier, "barrier", false}, {KindOnce, "once", false},
}

// String returns the name of the kind, as "mutex".
func (k Kind) String() string {
	for _, known := range kinds {
		if k == known.kind {
			return known.name
		}
	}
	if k == 0 {
		return "no kind"
	}
	return fmt.Sprintf("kind %q", byte(k))
}

// MarshalText returns the letter of the kind, or nothing for no kind.
func (k Kind) MarshalText() ([]byte, error) {
	if k == 0 {
		return nil, nil
	}
	return []byte{byte(k)}, nil
}

// UnmarshalText accepts what MarshalText returns.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = 0
	if len(text) == 0 {
		return nil
	}
	*k = Kind(text[0])
	if len(text) > 1 || k.Check() != nil {
		return fmt.Errorf("%w kind %q of a queue", ErrInvalid, text)
	}
	return nil
}

// Check returns what is wrong with the kind of a queue, wrapped in ErrInvalid.
func (k Kind) Check() error {
	for _, known := range kinds {
		if k == known.kind && known.queue {
			return nil
		}
	}
	return fmt.Errorf("%w kind %q: allowed are the letters of m(utex), r(wmutex), s(emaphore), e(lection) and p(arty)", ErrInvalid, string(rune(k)))
}

// CheckID returns what is wrong with a claim id, wrapped in ErrInvalid.
func CheckID(id string) error { return checkID("claim id", id) }

func checkMark(mark string) error { return checkID("owner mark", mark) }

func checkID(what, id string) error {
	ok := len(id) >= minID && len(id) <= maxID
	for _, c := range []byte(id) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%w %s %q: allowed are %d to %d letters, digits, - and _", ErrInvalid, what, id, minID, maxID)
	}
	return nil
}

func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w %s %q: it is not UTF-8", ErrInvalid, what, s)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w %s %q: control characters are not allowed", ErrInvalid, what, s)
		}
	}
	return nil
}
