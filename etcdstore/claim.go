package etcdstore

import (
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// claim is the value of a claim's key.
type claim struct {
	ID        string       `json:"id"`
	Units     int64        `json:"units"`
	Overtake  bool         `json:"overtake,omitempty"`
	Lingering bool         `json:"lingering,omitempty"`
	Owner     driver.Owner `json:"owner"`
	Store     string       `json:"store"`          // whose mailbox it belongs to
	TTL       int64        `json:"ttl"`            // its lease's, in seconds
	Base      int64        `json:"base"`           // of the epoch in which it came
	Used      int64        `json:"used,omitempty"` // highest token its owner spoke of

	// Token of the grant, if that does not follow from the order of arrival: the
	// claim holds then, whoever is in front of it.
	Token int64 `json:"token,omitempty"`
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
func (s *Store) ours(c driver.Claim, l *lease, base int64) claim {
	return claim{
		ID: c.ID, Units: c.Units, Overtake: c.Overtake, Owner: c.Owner, Store: s.id, TTL: l.seconds, Base: base,
		Entered: time.Now().UnixMicro(),
	}
}

// member is a claim as it was found in its queue.
type member struct {
	claim
	key            string
	limit          int64 // that it asks for
	create, change int64 // revisions
	lease          clientv3.LeaseID

	state driver.State
	token int64 // while it holds; 0: the grant is to be written yet
}

// entry is the claim as others see it.
func (m *member) entry(now time.Time) driver.Entry {
	e := driver.Entry{
		ID: m.ID, State: m.state, Units: m.Units, Owner: m.Owner, Lingering: m.Lingering,
		Age: since(m.Entered, now), TTL: time.Duration(m.TTL) * time.Second,
	}
	if m.state == driver.Holding {
		e.Token = max(m.token, m.Used)
		if m.Granted != 0 {
			e.Held = min(e.Age, since(m.Granted, now))
		}
	}
	return e
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
