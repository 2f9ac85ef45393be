package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/pawl-go/pawl/bench/internal/measure"
)

// column of a scenario's table.
type column struct {
	head   string
	metric string
	format string
	// With by, the column shows metric as a multiple of that of the peer by,
	// or, inverted, how many times the peer by has as much. It is computed in
	// each round, for rounds differ more than peers within one.
	by       string
	inverted bool
	worst    bool // the largest of all rounds, not the median
}

// run is one peer in one round of a scenario.
type run struct {
	Scenario string
	Peer     string
	Round    int
	Metrics  metrics
	Failure  string `json:",omitempty"`
}

// results of one scenario, by peer and round.
type results struct {
	peers []string // in order
	runs  map[string][]metrics
}

func gatherResults(runs []run, scenario string) results {
	r := results{runs: make(map[string][]metrics)}
	for _, x := range runs {
		if x.Scenario != scenario {
			continue
		}
		if r.runs[x.Peer] == nil {
			r.peers = append(r.peers, x.Peer)
		}
		r.runs[x.Peer] = append(r.runs[x.Peer], x.Metrics)
	}
	return r
}

func (r results) value(peer string, c column) float64 {
	var xs []float64
	for round, m := range r.runs[peer] {
		v := m.get(c.metric)
		if c.by != "" {
			base := r.runs[c.by]
			if round >= len(base) {
				return math.NaN()
			}
			v /= base[round].get(c.metric)
			if c.inverted {
				v = 1 / v
			}
		}
		xs = append(xs, v)
	}
	if c.worst {
		worst := math.NaN()
		for _, x := range xs {
			if math.IsNaN(worst) || x > worst {
				worst = x
			}
		}
		return worst
	}
	return measure.Median(xs)
}

// table prints one line for each peer.
func (r results) table(w io.Writer, columns []column) {
	const first = 14
	line := strings.Builder{}
	fmt.Fprintf(&line, "%-*s", first, "")
	for _, c := range columns {
		fmt.Fprintf(&line, " %*s", c.width(), c.head)
	}
	fmt.Fprintln(w, line.String())
	for _, p := range r.peers {
		line.Reset()
		fmt.Fprintf(&line, "%-*s", first, p)
		for _, c := range columns {
			fmt.Fprintf(&line, " %*s", c.width(), number(c.format, r.value(p, c)))
		}
		fmt.Fprintln(w, line.String())
	}
}

func (c column) width() int { return max(len([]rune(c.head)), 8) }

// number formats v; large ones get separators.
func number(format string, v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	s := fmt.Sprintf(format, v)
	whole, rest, _ := strings.Cut(s, ".")
	if rest != "" {
		rest = "." + rest
	}
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return whole + rest
}
