package main

import "context"

// scenario is one question to some peers.
type scenario struct {
	name    string
	title   func(b *bench) string
	note    string
	columns []column
	entries func(b *bench) []entry
	once    bool // one round is enough
}

// entry is one who takes part.
type entry struct {
	peer string
	run  func(ctx context.Context) (metrics, error)
}

// among makes entries of the peers that were asked for and fit.
func (b *bench) among(fits func(peer) bool, run func(context.Context, peer) (metrics, error)) (es []entry) {
	for _, p := range b.peers {
		if fits(p) {
			es = append(es, entry{p.name, func(ctx context.Context) (metrics, error) { return run(ctx, p) }})
		}
	}
	return es
}

func impatient(p peer) bool { return !p.patient }
func waits(p peer) bool     { return !p.floor }

var uncontendedColumns = []column{
	{head: "p50 µs", metric: "p50_us", format: "%.1f"},
	{head: "p99 µs", metric: "p99_us", format: "%.0f"},
	{head: "ops/s", metric: "ops_per_s", format: "%.0f"},
	{head: "sent", metric: "commands", format: "%.2f"},
	{head: "in script", metric: "in_scripts", format: "%.2f"},
	{head: "server µs", metric: "server_cpu_us", format: "%.1f"},
	{head: "allocs", metric: "allocs", format: "%.1f"},
	{head: "bytes", metric: "bytes", format: "%.0f"},
}

// with puts a column after the first n.
func with(columns []column, n int, c column) []column {
	return append(append(append([]column{}, columns[:n]...), c), columns[n:]...)
}

// byBase stands for the engine's base in column.by.
const byBase = "base"

const heldScenario = "held"

const contendedNote = `jain: fairness, 1 = all equal; wait: the longest of all rounds;
starved: goroutines that never had it in one of the rounds`

var scenarios = []scenario{
	{
		name:    "one",
		title:   func(b *bench) string { return "Lock and Unlock, nobody else wants it, 1 goroutine" },
		note:    "sent: commands by the client; in script: those run by its scripts; server: its CPU",
		columns: with(uncontendedColumns, 1, column{head: "×base", metric: "p50_us", format: "%.2f", by: byBase}),
		entries: func(b *bench) []entry {
			return b.among(impatient, func(ctx context.Context, p peer) (metrics, error) { return b.uncontended(ctx, p, 1) })
		},
	}, {
		name:    "many",
		title:   func(b *bench) string { return "Lock and Unlock, 64 goroutines on names of their own" },
		note:    "pawl×: how many times as many operations pawl does",
		columns: with(uncontendedColumns, 3, column{head: "pawl×", metric: "ops_per_s", format: "%.2f", by: "pawl", inverted: true}),
		entries: func(b *bench) []entry {
			return b.among(impatient, func(ctx context.Context, p peer) (metrics, error) { return b.uncontended(ctx, p, 64) })
		},
	},
	struckScenario("stopped", "one of the servers is stopped (SIGSTOP)"),
	struckScenario("killed", "one of the servers is killed"),
	{
		name: "process",
		title: func(b *bench) string {
			return count(b.waiters, "goroutine") + " of one process on one name" + b.workTitle()
		},
		note: "a hand-over is from unlock to the next holder, if that is another one\n" + contendedNote,
		columns: []column{
			{head: "per s", metric: "handovers_per_s", format: "%.0f"},
			{head: "p50 µs", metric: "p50_us", format: "%.1f"},
			{head: "p99 µs", metric: "p99_us", format: "%.0f"},
			{head: "sent", metric: "commands", format: "%.3f"},
			{head: "in script", metric: "in_scripts", format: "%.3f"},
			{head: "jain", metric: "jain", format: "%.4f"},
			{head: "wait ms", metric: "longest_ms", format: "%.1f", worst: true},
			{head: "starved", metric: "starved", format: "%.0f", worst: true},
		},
		entries: func(b *bench) []entry { return b.among(waits, b.oneProcess) },
	}, {
		name: "processes",
		title: func(b *bench) string {
			return count(b.procs, "process") + " of " + count(b.goroutines, "goroutine") + " on one name" + b.workTitle()
		},
		note: "×p: hand-overs to another process only, µs; ring: a bare PUBLISH from process to process\n" + contendedNote,
		columns: []column{
			{head: "per s", metric: "handovers_per_s", format: "%.0f"},
			{head: "×p per s", metric: "between_per_s", format: "%.0f"},
			{head: "×p p50", metric: "between_p50_us", format: "%.0f"},
			{head: "×ring", metric: "between_p50_us", format: "%.2f", by: "ring"},
			{head: "×p p99", metric: "between_p99_us", format: "%.0f"},
			{head: "×p sent", metric: "between_commands", format: "%.2f"},
			{head: "jain", metric: "jain", format: "%.4f"},
			{head: "wait ms", metric: "longest_ms", format: "%.0f", worst: true},
			{head: "starved", metric: "starved", format: "%.0f", worst: true},
		},
		entries: func(b *bench) []entry {
			es := b.among(waits, b.processes)
			if b.engine.ring {
				es = append([]entry{{"ring", b.ringAround}}, es...)
			}
			return es
		},
	}, {
		name:  "pass",
		title: func(b *bench) string { return "Handed back and forth between two goroutines of one process" },
		note:  "sent: commands for each hand-over, from the first to the last",
		columns: []column{
			{head: "handovers", metric: "handovers", format: "%.0f"},
			{head: "p50 µs", metric: "p50_us", format: "%.2f"},
			{head: "p99 µs", metric: "p99_us", format: "%.2f"},
			{head: "sent", metric: "commands", format: "%.4f"},
		},
		entries: func(b *bench) []entry {
			return []entry{{"pawl", b.passPawl}, {"sync.Mutex", b.passSync}}
		},
	}, {
		name: heldScenario,
		title: func(b *bench) string {
			return count(b.locks, "lock") + " held in one client for " + b.ttl.String() + ", their TTL, with renewal"
		},
		note: "goroutines at the end, and the most seen; heap, RSS and server: bytes for each lock; cpu in cores",
		columns: []column{
			{head: "gorout.", metric: "goroutines", format: "%.0f"},
			{head: "peak", metric: "goroutines_peak", format: "%.0f"},
			{head: "heap B", metric: "heap_bytes", format: "%.0f"},
			{head: "RSS B", metric: "resident_bytes", format: "%.0f"},
			{head: "server B", metric: "server_bytes", format: "%.0f"},
			{head: "sent/s", metric: "commands_per_s", format: "%.1f"},
			{head: "cpu", metric: "cpu", format: "%.3f"},
			{head: "srv cpu", metric: "server_cpu", format: "%.3f"},
			{head: "lost", metric: "lost", format: "%.0f"},
		},
		entries: func(b *bench) []entry { return []entry{{"pawl", b.held}} },
		once:    true,
	},
}

// struckScenario is one for several servers, of which one fails.
func struckScenario(how, what string) scenario {
	return scenario{
		name:  how,
		title: func(*bench) string { return "Lock and Unlock, 1 goroutine, when " + what },
		note:  "up: in the same turn before that; ×base: p50; ×up: p99; longest: of all rounds",
		columns: []column{
			{head: "up p50", metric: "p50_up", format: "%.1f"},
			{head: "up p99", metric: "p99_up", format: "%.0f"},
			{head: "p50 µs", metric: "p50_us", format: "%.1f"},
			{head: "×base", metric: "p50_us", format: "%.2f", by: byBase},
			{head: "p99 µs", metric: "p99_us", format: "%.0f"},
			{head: "×up", metric: "times_p99", format: "%.2f"},
			{head: "longest ms", metric: "longest_ms", format: "%.1f", worst: true},
		},
		entries: func(b *bench) []entry {
			if b.engine.fail == nil {
				return nil
			}
			return b.among(impatient, func(ctx context.Context, p peer) (metrics, error) { return b.struck(ctx, p, how) })
		},
	}
}
