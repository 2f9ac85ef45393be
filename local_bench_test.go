package pawl_test

import (
	"context"
	"sync"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

func BenchmarkUncontended(b *testing.B) {
	c := pawl.New(memstore.New(), nil)
	defer c.Close(b.Context())
	m := c.Mutex("a")
	b.ReportAllocs()
	ctx := context.Background()
	for b.Loop() {
		l, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		l.Unlock(ctx)
	}
}

func BenchmarkHandOverInProcess(b *testing.B) {
	c := pawl.New(memstore.New(), nil)
	defer c.Close(b.Context())
	m := c.Mutex("a")
	b.ReportAllocs()
	var wg sync.WaitGroup
	const n = 16
	b.ResetTimer()
	for i := range n {
		wg.Go(func() {
			for range b.N/n + i/n {
				l, err := m.Lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				l.Unlock(b.Context())
			}
		})
	}
	wg.Wait()
}
