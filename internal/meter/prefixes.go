package meter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// Other is the label of names that begin with none of the prefixes.
const Other = "other"

// MaxPrefixes is how many there may be: each is a value of a label of many metrics.
const MaxPrefixes = 20

// Prefixes sorts names by what they begin with, so that a label has few values however
// many names there are.
type Prefixes struct {
	all []string // longer ones first
}

// NewPrefixes returns those prefixes, or what is wrong with them, wrapped in
// driver.ErrInvalid.
func NewPrefixes(all []string) (*Prefixes, error) {
	if len(all) > MaxPrefixes {
		return nil, fmt.Errorf("%w: %d prefixes: allowed are %d", driver.ErrInvalid, len(all), MaxPrefixes)
	}
	p := new(Prefixes)
	for _, prefix := range all {
		if err := driver.CheckName(prefix); err != nil {
			return nil, fmt.Errorf("prefix: %w", err)
		}
		if prefix == Other {
			return nil, fmt.Errorf("%w prefix %q: that is what the rest is counted under", driver.ErrInvalid, prefix)
		}
		if slices.Contains(p.all, prefix) {
			return nil, fmt.Errorf("%w prefix %q: it is there twice", driver.ErrInvalid, prefix)
		}
		p.all = append(p.all, prefix)
	}
	slices.SortFunc(p.all, func(a, b string) int { return len(b) - len(a) })
	return p, nil
}

// Of returns the longest prefix of a name, or Other.
func (p *Prefixes) Of(name string) string {
	for _, prefix := range p.all {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return Other
}

// All returns all that Of may return.
func (p *Prefixes) All() []string { return append(slices.Clone(p.all), Other) }
