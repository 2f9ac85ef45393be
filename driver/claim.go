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
	MaxName  = 512 // bytes
	MaxLabel = 128 // bytes
	MinTTL   = 100 * time.Millisecond
	MaxTTL   = 7 * 24 * time.Hour
	MaxLimit = 1 << 31
	minID    = 8
	maxID    = 64
)

// NewID makes a random claim id: 26 characters, 130 bits.
func NewID() string { return rand.Text() }

// CheckName answers what is wrong with a name, wrapped in ErrInvalid: 1 to
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

// CheckTTL answers what is wrong with a time to live, wrapped in ErrInvalid.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w TTL %v: allowed are %v to %v", ErrInvalid, ttl, MinTTL, MaxTTL)
	}
	return nil
}

// Check answers what is wrong with the claim, wrapped in ErrInvalid. Stores
// call it before they do anything.
func (c *Claim) Check() error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	if err := CheckID(c.ID); err != nil {
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

// CheckAll answers what is wrong with the claims of an EnterAll: each by
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

// Check answers what is wrong with the name, the id and Linger, wrapped in
// ErrInvalid. Stores call it before they do anything; the TTL concerns Renew
// alone, see CheckTTL.
func (r *Ref) Check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if err := CheckID(r.ID); err != nil {
		return err
	}
	if r.Linger < 0 || r.Linger > MaxTTL {
		return fmt.Errorf("%w linger %v: allowed are 0 to %v", ErrInvalid, r.Linger, MaxTTL)
	}
	return nil
}

// Check answers what is wrong with the record's name and TTL, wrapped in
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

// CheckLabel answers what is wrong with a label, wrapped in ErrInvalid.
func CheckLabel(label string) error {
	if len(label) > MaxLabel {
		return fmt.Errorf("%w label %.20q…: %d bytes; allowed are up to %d", ErrInvalid, label, len(label), MaxLabel)
	}
	return checkText("label", label)
}

// CheckUnits answers what is wrong with a number of units, wrapped in
// ErrInvalid.
func CheckUnits(units int64) error {
	if units < 1 || units > MaxLimit {
		return fmt.Errorf("%w units %d: allowed are 1 to %d", ErrInvalid, units, MaxLimit)
	}
	return nil
}

// CheckLimit answers what is wrong with a limit, wrapped in ErrInvalid.
func CheckLimit(limit int64) error {
	if limit < 1 || limit > MaxLimit {
		return fmt.Errorf("%w limit %d: allowed are 1 to %d", ErrInvalid, limit, MaxLimit)
	}
	return nil
}

// CheckID answers what is wrong with a claim id, wrapped in ErrInvalid.
func CheckID(id string) error {
	ok := len(id) >= minID && len(id) <= maxID
	for _, c := range []byte(id) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%w claim id %q: allowed are %d to %d letters, digits, - and _", ErrInvalid, id, minID, maxID)
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
