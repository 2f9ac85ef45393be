package etcdstore

import (
	"cmp"
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// claim is the value of a claim's key.
type claim struct {
	ID        string       `json:"id"`
	Mark      string       `json:"mark,omitempty"` // the owner's; "" for who entered it
	Units     int64        `json:"units"`
	Overtake  bool         `json:"overtake,omitempty"`
	Lingering bool         `json:"lingering,omitempty"`
	Owner     driver.Owner `json:"owner"`
	Store     string       `json:"store"`          // whose mailbox it belongs to
	TTL       int64        `json:"ttl"`            // its lease's, in seconds
	Base      int64        `json:"base"`           // of the epoch in which it came
	Used      int64        `json:"used,omitempty"` // highest token its owner spoke of

	// Came is the revision in which it was entered, if that is not its key's: it was
	// adopted since, and has kept its place.
	Came int64 `json:"came,omitempty"`

	// Token of the grant, if that does not follow from the order of arrival: the
	// claim holds then, whoever is in front of it.
	Token int64 `json:"token,omitempty"`
	// Drawn, instead of Token: it was granted by the write that its key shows, as the
	// one of that number. Who writes the claim again writes the token: see snapshot.
	Drawn int64 `json:"drawn,omitempty"`
	// Grown: it was given its token when it grew, was adopted, or got in before those who
	// wait; so the token of its place is none of its own.
	Grown bool `json:"grown,omitempty"`
	// Alone, with Token: it was granted all units.
	Alone bool `json:"alone,omitempty"`
	// Overtaken: another was granted a token above that of this claim's
	// revision, so it needs one of its own when it is granted.
	Overtaken bool `json:"overtaken,omitempty"`

	// For people, by wall clocks, in microseconds.
	Entered int64 `json:"entered"`
	Granted int64 `json:"granted,omitempty"` // 0: not known
}

func (c *claim) encode() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return string(b)
}

// ours is a new claim of this store.
func (s *store) ours(c driver.Claim, l *lease, base int64) claim {
	return claim{
		ID: c.ID, Units: c.Units, Overtake: c.Overtake, Owner: c.Owner, Store: s.id, TTL: l.seconds, Base: base,
		Entered: time.Now().UnixMicro(),
	}
}

// member is a claim as it was found in its queue.
type member struct {
	claim
	key string
	sort
	create, change int64 // revisions
	lease          clientv3.LeaseID

	state driver.State
	token int64 // while it holds; 0: the grant is to be written yet
	alone bool  // while it holds: it was granted all units
}

// entry is the claim as others see it.
func (m *member) entry(now time.Time) driver.Entry {
	e := driver.Entry{
		ID: m.ID, State: m.state, Units: m.Units, Owner: m.Owner, Lingering: m.Lingering,
		Age: since(m.Entered, now), TTL: time.Duration(m.TTL) * time.Second,
	}
	if m.state == driver.Holding {
		e.Token = max(m.token, m.Used) // see spoken
		if m.Granted != 0 {
			e.Held = min(e.Age, since(m.Granted, now))
		}
	}
	return e
}

// id names the claim of that name as its owner does.
func (m *member) id(name string) claimID { return claimID{name, m.ID, m.Mark} }

// came is where the claim stands in the order of arrival.
func (m *member) came() int64 { return cmp.Or(m.Came, m.create) }

// spare is how many tokens there are for the owner after that of the grant.
func (m *member) spare() int64 {
	if !m.alone || m.token == 0 {
		return 0
	}
	return spare(m.token)
}

// has reports whether the claim's owner may have that token. A claim that began to hold by
// its place, and was marked by somebody who did not know that, was given another token
// then, of which its owner need not know.
func (m *member) has(t int64) bool {
	first := token(m.Base, m.create)
	return m.token <= t && t <= m.token+m.spare() || !m.Grown && first <= t && t <= first+spare(first)
}

// spoken is the highest token of the claim that was spoken of, by its owner now, or
// before. What cannot be counts as the highest that can.
func (m *member) spoken(used int64) int64 {
	return min(max(m.token, m.Used, used), m.token+m.spare())
}

func since(micros int64, now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMicro(micros)))
}

// put writes a claim that is there already, and leaves it its lease.
func (m *member) put(c claim) clientv3.Op {
	return clientv3.OpPut(m.key, c.encode(), clientv3.WithIgnoreLease())
}

// present holds while the claim is in the queue.
func (m *member) present() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(m.key), "=", m.create)
}

// same holds while nothing about the claim has changed.
func (m *member) same() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(m.key), "=", m.change)
}
