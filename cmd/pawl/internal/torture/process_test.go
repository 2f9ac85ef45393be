package torture

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/memstore"
)

// play is a torture within this process: a parent that hands on what is handed over,
// and a fenced resource.
type play struct {
	testing.TB
	store     func(process int) driver.Store
	processes int
	c         Config
	fake      bool // in a synctest bubble: its time, and no fenced resource

	mu      sync.Mutex
	history []Event
	tasks   []*io.PipeWriter
	rand    *rand.Rand
}

// start starts the processes, which stop when the returned function is called. It
// returns the history by the clock.
func (p *play) start() (stop func() []Event) {
	p.Helper()
	if p.c.TTL == 0 {
		p.c.TTL = 300 * time.Millisecond
	}
	if p.c.Kinds == nil {
		p.c.Kinds = AllKinds
	}
	p.rand = rand.New(rand.NewPCG(p.c.Seed, 0))
	p.c.Prefix = "torture/"
	if !p.fake {
		p.c.Resource = serveFence(p)
	}
	var processes, pipes sync.WaitGroup
	for i := 1; i <= p.processes; i++ {
		in, tasks := io.Pipe()
		out, events := io.Pipe()
		p.tasks = append(p.tasks, tasks)
		rec, err := NewRecorder(events, i, 1)
		if err != nil {
			p.Fatal(err)
		}
		if p.fake {
			rec.now = fakeNow
		}
		if p.c.Start == 0 {
			p.c.Start = rec.Now()
		}
		c, store := p.c, p.store(i)
		c.Process, c.Life = i, 1
		pipes.Go(func() {
			if err := Read(out, func(e Event) { p.event(i, e) }); err != nil {
				p.Error(err)
			}
		})
		processes.Go(func() {
			if err := Work(await.Context(p), c, store, in, rec); err != nil && c.Break == "" {
				p.Errorf("process %d: %.3000s", i, err)
			}
			in.Close()
			events.Close()
		})
	}
	return func() []Event {
		for _, tasks := range p.tasks {
			tasks.Close()
		}
		processes.Wait()
		pipes.Wait()
		slices.SortStableFunc(p.history, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
		return p.history
	}
}

// fakeNow is the time of a synctest bubble.
func fakeNow() time.Duration { return time.Duration(time.Now().UnixNano()) }

// run runs the processes for d.
func (p *play) run(d time.Duration) []Event {
	stop := p.start()
	time.Sleep(d)
	return stop()
}

// event notes what process i did.
func (p *play) event(i int, e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history = append(p.history, e)
	if e.What != Released || e.Handle == "" {
		return
	}
	task, err := json.Marshal(Task{Adopt: &e})
	if err != nil {
		p.Error(err)
	}
	others := p.rand.Perm(p.processes)
	for _, other := range others[:1+p.rand.IntN(min(2, p.processes))] {
		go fmt.Fprintf(p.tasks[other], "%s\n", task) // fails when it is over
	}
}

// serveFence serves a fenced resource until the test ends.
func serveFence(t testing.TB) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	highest := make(map[string]int64)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan(); {
					var name string
					var token int64
					if _, err := fmt.Sscan(in.Text(), &name, &token); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					reply := "ok"
					if token < highest[name] {
						reply = fmt.Sprintf("stale %d", highest[name])
					} else {
						highest[name] = token
					}
					mu.Unlock()
					fmt.Fprintln(conn, reply)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func inMemory(t testing.TB) func(int) driver.Store {
	store := memstore.New()
	t.Cleanup(func() { store.Close() })
	return func(int) driver.Store { return store }
}

func inFolder(t testing.TB) func(int) driver.Store {
	dir := t.TempDir()
	return func(int) driver.Store {
		store, err := filestore.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
}

// checkForm checks what must be true of each history, whatever happens.
func checkForm(t *testing.T, history []Event) map[What]int {
	t.Helper()
	type key struct {
		process, life int
		op            uint64
	}
	counts := make(map[What]int)
	ops := make(map[key][]Event)
	var order []key
	for _, e := range history {
		counts[e.What]++
		k := key{e.Process, e.Life, e.Op}
		if len(ops[k]) == 0 {
			order = append(order, k)
		}
		ops[k] = append(ops[k], e)
		if e.At == 0 || e.Name == "" || e.Kind == "" || e.Op == 0 {
			t.Errorf("something is missing in %+v", e)
		}
	}
	for _, k := range order {
		var what []string
		for _, e := range ops[k] {
			what = append(what, string(e.What))
		}
		if line := strings.Join(what, " "); !wellFormed(ops[k]) {
			t.Errorf("operation %v is: %s", k, line)
		}
	}
	return counts
}

// wellFormed says whether the events are those of one operation.
func wellFormed(events []Event) bool {
	first, last := events[0], events[len(events)-1]
	if first.What == SetLimit || first.What == ForceRelease {
		return len(events) == 2 && first.End == 0 && last.End >= last.At && last.What == first.What
	}
	if first.What != Ask || !slices.Contains([]What{Failed, Told, Released}, last.What) {
		return false
	}
	state := Ask // Granted, Changing, Release, or the last one
	for _, e := range events[1:] {
		ok := e.Name == first.Name && e.Kind == first.Kind && e.Limit == first.Limit
		switch e.What {
		case Granted, Failed:
			ok = ok && state == Ask
		case Look, Write:
			ok = ok && (state == Granted || state == Changing)
			state = Granted
		case Told, Release, Changing:
			ok = ok && (state == Granted || state == Changing)
		case Changed:
			ok = ok && state == Changing
		case Released:
			ok = ok && state == Release && (e.Way == "handover") == (e.Handle != "")
		default:
			return false
		}
		if !ok {
			return false
		}
		switch e.What {
		case Look, Write:
		case Changed:
			state = Granted
		default:
			state = e.What
		}
	}
	return state == Failed || state == Told || state == Released
}

// Processes that nothing hurts do all that they can, and say so in a form that can be
// judged.
func TestWork(t *testing.T) {
	for name, store := range map[string]func(int) driver.Store{"memory": inMemory(t), "folder": inFolder(t)} {
		t.Run(name, func(t *testing.T) {
			p := &play{TB: t, store: store, processes: 3, c: Config{Seed: 1, Crowd: 20}}
			stop := p.start()
			await.That(t, "all kinds of events", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				seen := make(map[string]bool)
				for _, e := range p.history {
					seen[string(e.What)] = true
					seen[string(e.What)+" "+e.Way] = true
					seen[string(e.What)+" "+e.Kind] = true
					seen[string(e.What)+" "+strings.TrimPrefix(e.Name, "torture/")] = true
				}
				for _, want := range []string{
					"look", "told", "failed", "write", "limit",
					"granted lock", "granted try", "granted adopt", "granted all", "granted mutex", "granted rw", "granted semaphore", "granted crowd",
					"changed upgrade", "changed downgrade", "released handover", "released unlock",
				} {
					if !seen[want] {
						return false
					}
				}
				return len(p.history) > 5000
			})
			history := stop()
			t.Log(checkForm(t, history))
			for _, f := range Judge(history).Findings {
				t.Errorf("%s, %s: %s", f.Rule, f.Name, f.Text)
			}
		})
	}
}

// A process whose context ends, or whose input does, releases what it holds.
func TestWorkEnds(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	p := &play{TB: t, store: func(int) driver.Store { return store }, processes: 2}
	p.run(500 * time.Millisecond)
	handed := make(map[string]bool) // there may be nobody any more who adopts it
	for _, e := range p.history {
		if id, _, ok := strings.Cut(e.Handle, "."); ok && e.Way == "handover" {
			handed[id] = true
		}
	}
	for q, err := range store.List(context.Background(), "") {
		for _, e := range q.Claims {
			if !e.Lingering && !handed[e.ID] {
				t.Errorf("left behind: %+v, %v", q, err)
			}
		}
	}
}
