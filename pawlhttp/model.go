package pawlhttp

import (
	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// Queue is who holds a name and who waits for it, for programs. Spans are in
// milliseconds.
type Queue struct {
	Name  string `json:"name"`
	Kind  string `json:"kind,omitempty"`
	Limit int64  `json:"limit,omitempty"`
	// Declared is the limit that those who use it give, if it was made another.
	Declared int64   `json:"declared,omitempty"`
	Holders  []Claim `json:"holders"`
	Waiters  []Claim `json:"waiters"`
}

// Claim is one who holds or waits.
type Claim struct {
	ID string `json:"id"`
	pawl.Owner
	Units     int64 `json:"units"`
	Token     int64 `json:"token,omitempty"`
	AgeMS     int64 `json:"age_ms"`
	HeldMS    int64 `json:"held_ms,omitempty"`
	TTLMS     int64 `json:"ttl_ms"`
	Lingering bool  `json:"lingering,omitempty"`
}

// QueueOf returns the queue for programs.
func QueueOf(q *pawl.Queue) *Queue {
	var holders, waiters []pawl.Entry
	for _, e := range q.Claims {
		if e.State == driver.Holding {
			holders = append(holders, e)
		} else {
			waiters = append(waiters, e)
		}
	}
	kind := ""
	if q.Kind != 0 {
		kind = q.Kind.String()
	}
	return &Queue{q.Name, kind, q.Limit, q.Declared, ClaimsOf(holders), ClaimsOf(waiters)}
}

// ClaimsOf returns the claims for programs.
func ClaimsOf(entries []pawl.Entry) []Claim {
	out := make([]Claim, 0, len(entries))
	for i := range entries {
		out = append(out, *claimOf(&entries[i]))
	}
	return out
}

func claimOf(e *pawl.Entry) *Claim {
	if e == nil {
		return nil
	}
	return &Claim{
		ID: e.ID, Owner: e.Owner, Units: e.Units, Token: e.Token, AgeMS: e.Age.Milliseconds(),
		HeldMS: e.Held.Milliseconds(), TTLMS: e.TTL.Milliseconds(), Lingering: e.Lingering,
	}
}
