package memstore_test

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
)

func BenchmarkEnterLeave(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	c := driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
	r := driver.Ref{Name: c.Name, ID: c.ID}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Enter(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Leave(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenew(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	c := driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
	if _, err := s.Enter(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	rs := []driver.Ref{{Name: c.Name, ID: c.ID, TTL: c.TTL}}
	failed := func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			b.Error(st.State, err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Renew(b.Context(), rs, failed)
	}
}
