package filestore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// playCrowd has n claims of one name wait, hold for an instant, and wait again,
// until its input ends. It says when the first ones have entered, and of each
// hand-over when it held and when it began to leave.
func playCrowd(s *Store, name, n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<12)
	var mu sync.Mutex
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, words...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready", time.Now().UnixNano())
	var entered, all sync.WaitGroup
	errs := make(chan error, count)
	for range count {
		entered.Add(1)
		all.Go(func() {
			first := sync.OnceFunc(entered.Done)
			for ctx.Err() == nil {
				c := claim(name)
				st, err := s.Enter(context.Background(), c)
				first()
				for err == nil && st.State == driver.Waiting {
					st, err = s.Wait(ctx, ref(c))
				}
				if ctx.Err() != nil {
					_, _ = s.Leave(context.Background(), ref(c))
					return
				}
				if err != nil || st.State != driver.Holding {
					errs <- fmt.Errorf("%v: %w", st.State, err)
					return
				}
				held := time.Now().UnixNano()
				left := time.Now().UnixNano()
				if _, err := s.Leave(context.Background(), ref(c)); err != nil {
					errs <- err
					return
				}
				say("held", held, left)
			}
		})
	}
	entered.Wait()
	fmt.Println("entered", time.Now().UnixNano())
	all.Wait()
	mu.Lock()
	out.Flush()
	mu.Unlock()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// crowd is what BenchmarkCrowd measures.
type crowd struct {
	entered   time.Duration
	handovers int
	p50, p99  time.Duration
}

// runCrowd has claims wait for one name, as many in each of so many processes,
// while the caller holds it, and then hands it over for a while.
func runCrowd(t testing.TB, processes, each int, during time.Duration) (c crowd) {
	dir := t.TempDir() + "/locks"
	s := mustOpen(t, dir)
	first := claim("crowd")
	enter(t, s, first, driver.Holding)
	children := make([]*child, processes)
	for i := range children {
		children[i] = start(t, "crowd", dir, "crowd", strconv.Itoa(each))
	}
	ready := int64(math.MaxInt64)
	last := int64(0)
	for _, k := range children {
		ready = min(ready, k.expect("ready"))
	}
	for _, k := range children {
		last = max(last, k.expect("entered"))
	}
	c.entered = time.Duration(last - ready) // without the start of the first process
	time.Sleep(300 * time.Millisecond)
	leave(t, s, first)
	time.Sleep(during)
	var spans [][2]int64
	for _, k := range children {
		k.stdin.Close()
	}
	for _, k := range children {
		for line := range k.said {
			if line[0] == "held" {
				held, _ := strconv.ParseInt(line[1], 10, 64)
				left, _ := strconv.ParseInt(line[2], 10, 64)
				spans = append(spans, [2]int64{held, left})
			}
		}
		if err := <-k.ended; err != nil {
			t.Error(err)
		}
		k.ended <- nil
	}
	slices.SortFunc(spans, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	var took []time.Duration
	for i := 1; i < len(spans) && spans[i][0]-spans[0][0] < int64(during); i++ {
		took = append(took, time.Duration(spans[i][0]-spans[i-1][1]))
	}
	slices.Sort(took)
	c.handovers = len(took)
	if len(took) > 0 {
		c.p50, c.p99 = took[len(took)/2], took[len(took)*99/100]
	}
	return c
}

// BenchmarkCrowd: what it costs that many wait for one name.
func BenchmarkCrowd(b *testing.B) {
	for _, size := range [][2]int{{1, 10}, {1, 1000}, {10, 1}, {200, 1}, {200, 5}} {
		b.Run(fmt.Sprintf("processes=%d/each=%d", size[0], size[1]), func(b *testing.B) {
			for range b.N {
				c := runCrowd(b, size[0], size[1], 3*time.Second)
				b.ReportMetric(c.entered.Seconds(), "s-to-enter")
				b.ReportMetric(float64(c.handovers)/3, "handovers/s")
				b.ReportMetric(float64(c.p50.Microseconds()), "p50-µs")
				b.ReportMetric(float64(c.p99.Microseconds()), "p99-µs")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// TestCrowdOfProcesses: many wait for one name, in many processes, and each is
// served in its turn.
func TestCrowdOfProcesses(t *testing.T) {
	processes, each := 16, 10
	if testing.Short() {
		processes = 4
	}
	c := runCrowd(t, processes, each, 200*time.Millisecond)
	t.Logf("entered in %v, %d hand-overs, p50 %v, p99 %v", c.entered, c.handovers, c.p50, c.p99)
}

// TestHandOverWakesTheOneItIsFor: each of a crowd is told of its turn, though
// none of them looks by itself, and in the order in which they came; also where
// the user has no watches left, of which a crowd of processes needs none.
func TestHandOverWakesTheOneItIsFor(t *testing.T) {
	dir := t.TempDir()
	m := thisMachine(t)
	m.probe, m.newWatch = time.Hour, noWatch
	stores := []*Store{mustOpenOn(t, dir, m), mustOpenOn(t, dir, m), mustOpenOn(t, dir, m)}
	first := claim("a")
	enter(t, stores[0], first, driver.Holding)
	const n = 300
	held := make(chan int, n)
	ctx := soon(t)
	var work sync.WaitGroup
	for i := range n {
		s, c := stores[i%len(stores)], claim("a")
		enter(t, s, c, driver.Waiting)
		work.Go(func() {
			st, err := s.Wait(ctx, ref(c))
			for err == nil && st.State == driver.Waiting {
				st, err = s.Wait(ctx, ref(c))
			}
			if err != nil || st.State != driver.Holding {
				t.Errorf("number %d: %v, %v", i, st.State, err)
				return
			}
			held <- i
			if _, err := s.Leave(ctx, ref(c)); err != nil {
				t.Error(err)
			}
		})
	}
	leave(t, stores[0], first)
	for want := range n {
		select {
		case got := <-held:
			if got != want {
				t.Fatalf("number %d had the turn of number %d", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("number %d was not told of its turn", want)
		}
	}
	work.Wait()
}
