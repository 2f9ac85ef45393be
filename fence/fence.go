package fence

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl/driver"
)

var (
	// ErrStale: a greater token of the name was seen. The lease is over, and somebody
	// else has held the lock since. Nothing was written. The error is a *[StaleError],
	// which says both tokens.
	ErrStale = errors.New("stale fencing token")

	// ErrInvalid: a name or token is not allowed. Nothing was sent. It is that of
	// package pawl.
	ErrInvalid = driver.ErrInvalid
)

// StaleError says which token was refused, and why. It matches [ErrStale].
type StaleError struct {
	Name  string
	Token int64 // that was refused
	Seen  int64 // the greatest one that was seen
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %d of %q, and %d was seen", ErrStale, e.Token, e.Name, e.Seen)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Token is the fencing token of a grant of a name.
type Token struct {
	Name  string
	Value int64
}

// Check returns what is wrong with the token, wrapped in [ErrInvalid].
func (t Token) Check() error {
	if err := driver.CheckName(t.Name); err != nil {
		return err
	}
	if t.Value < 1 {
		return fmt.Errorf("%w fencing token %d of %q: allowed are 1 and more; of a lease of several locks each has its own: see Of", ErrInvalid, t.Value, t.Name)
	}
	return nil
}

// Lease is what has tokens: a *pawl.Lease, *pawl.RWLease or *pawl.Leadership.
type Lease interface {
	Names() []string
	TokenOf(name string) int64
}

// Of returns the tokens of a lease, one for each of its names.
func Of(l Lease) []Token {
	names := l.Names()
	tokens := make([]Token, len(names))
	for i, n := range names {
		tokens[i] = Token{n, l.TokenOf(n)}
	}
	return tokens
}

// Ordered returns a copy of the tokens in the order of their names, in which all who lock
// something for each of them must go, lest they deadlock. An error says which of them
// is not allowed: there must be one at least, and none may have a name of another.
func Ordered(tokens []Token) ([]Token, error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%w list of fencing tokens: it is empty", ErrInvalid)
	}
	for _, t := range tokens {
		if err := t.Check(); err != nil {
			return nil, err
		}
	}
	byName := func(a, b Token) int { return cmp.Compare(a.Name, b.Name) }
	tokens = slices.Clone(tokens)
	slices.SortFunc(tokens, byName)
	for i, t := range tokens[1:] {
		if t.Name == tokens[i].Name {
			return nil, fmt.Errorf("%w list of fencing tokens: %d and %d are both of %q", ErrInvalid, tokens[i].Value, t.Value, t.Name)
		}
	}
	return tokens, nil
}
