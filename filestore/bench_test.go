package filestore

import (
	"fmt"
	"testing"

	"github.com/pawl-go/pawl/driver"
)

func BenchmarkEnterLeave(b *testing.B) {
	s := mustOpen(b, b.TempDir()+"/locks")
	for b.Loop() {
		c := claim("orders/42")
		enter(b, s, c, driver.Holding)
		leave(b, s, c)
	}
}

func BenchmarkRenew(b *testing.B) {
	s := mustOpen(b, b.TempDir()+"/locks")
	refs := make([]driver.Ref, 100)
	for i := range refs {
		c := claim(fmt.Sprint("orders/", i))
		enter(b, s, c, driver.Holding)
		refs[i] = ref(c)
	}
	for b.Loop() {
		s.Renew(b.Context(), refs, func(_ int, st driver.Status, err error) {
			if err != nil || st.State != driver.Holding {
				b.Errorf("renew: %v, %v", st.State, err)
			}
		})
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(refs)), "µs/claim")
}

// BenchmarkHandOver passes a name to and fro between two Stores, which know of
// each other only what two processes would.
func BenchmarkHandOver(b *testing.B) {
	dir := b.TempDir() + "/locks"
	one, two := mustOpen(b, dir), mustOpen(b, dir)
	holder := claim("orders/42")
	enter(b, one, holder, driver.Holding)
	for b.Loop() {
		next := claim("orders/42")
		enter(b, two, next, driver.Waiting)
		got := make(chan error, 1)
		go func() {
			st, err := two.Wait(b.Context(), ref(next))
			for err == nil && st.State == driver.Waiting {
				st, err = two.Wait(b.Context(), ref(next))
			}
			got <- err
		}()
		leave(b, one, holder)
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		one, two, holder = two, one, next
	}
}

func BenchmarkOpenClose(b *testing.B) {
	dir := b.TempDir() + "/locks"
	for b.Loop() {
		s, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
