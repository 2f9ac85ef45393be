package torture

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// overview draws all lanes at once, small: how much of the time each process believed, stacked by
// kind, with its faults behind and the findings across. It needs no JS, and is of
// everything, also when the bars are only a sample.
type overview struct {
	s      *story
	height int // of a lane
	cells  int // across
	out    strings.Builder
}

func drawOverview(s *story, findings []Finding) (svg string, ticks []tick) {
	n := max(1, len(s.processes))
	o := &overview{s: s, height: laneHeight(n), cells: min(600, max(60, 10_000/n))}
	all := n * o.height
	w := &o.out
	fmt.Fprintf(w, `<svg class="lanes" width="100%%" height="%d" role="img" aria-label="All processes from beginning to end: how much each believed, its faults, and the findings">`, all)
	for _, sp := range s.gone {
		o.rect("gone", sp, "not running")
	}
	o.faults()
	o.density()
	for i := 1; i < n; i++ {
		fmt.Fprintf(w, `<line class="rule" x1="0" x2="100%%" y1="%d" y2="%d"/>`, i*o.height, i*o.height)
	}
	for i, f := range findings[:min(len(findings), listed)] {
		x := o.percent(f.At)
		fmt.Fprintf(w, `<line id="mark-%d" class="finding" x1="%s" x2="%s" y1="0" y2="%d"><title>%s</title></line>`,
			i+1, x, x, all, html.EscapeString(f.Rule+" "+f.Name))
	}
	w.WriteString(`</svg>`)
	return o.out.String(), o.ticks()
}

func laneHeight(lanes int) int { return min(24, max(5, 240/max(1, lanes))) }

// ticks are round numbers of seconds.
func (o *overview) ticks() []tick {
	all := float64(o.s.end-o.s.begin) / 1e9
	step := math.Pow(10, math.Floor(math.Log10(all/5)))
	for _, by := range []float64{5, 2} {
		if all/(step*by) >= 5 {
			step *= by
			break
		}
	}
	var ticks []tick
	for n := 0.0; n*step <= all; n++ {
		at := n * step
		ticks = append(ticks, tick{at > .97*all, o.percent(o.s.begin + int64(at*1e9)), strconv.FormatFloat(math.Round(at/step)*step, 'g', 9, 64)})
	}
	return ticks
}

// percent says where a time is. Widths are percents so that the drawing needs no JS to fit.
func (o *overview) percent(at int64) string {
	part := float64(at-o.s.begin) / float64(o.s.end-o.s.begin)
	return fmt.Sprintf("%.3f%%", 100*min(1, max(0, part)))
}

func (o *overview) rect(class string, sp span, title string) {
	y, h := sp.lane*o.height, o.height
	if sp.lane < 0 {
		y, h = 0, len(o.s.processes)*o.height
	}
	from, to := min(max(sp.from, o.s.begin), o.s.end), min(max(sp.to, o.s.begin), o.s.end)
	width := max(0.06, 100*float64(to-from)/float64(o.s.end-o.s.begin))
	fmt.Fprintf(&o.out, `<rect class="%s" x="%s" width="%.3f%%" y="%d" height="%d"><title>%s</title></rect>`,
		class, o.percent(from), width, y, h, html.EscapeString(title))
}

func (o *overview) faults() {
	const most = 4000
	faults := o.s.faults
	drawn := min(most, len(faults))
	for i := range drawn {
		sp := faults[i*len(faults)/drawn]
		o.rect("fault "+faultClass(sp.what), sp, sp.what)
	}
}

// faultClass is one of what the style knows: words from a history don't name classes.
func faultClass(what string) string {
	switch what {
	case "kill", "pause", "late", "cut", "slow", "dark", "server":
		return "f-" + what
	}
	return "f-other"
}

func kindClass(kind string) int {
	for i, k := range AllKinds {
		if k == kind {
			return i
		}
	}
	return len(AllKinds)
}

func (o *overview) density() {
	kinds := len(AllKinds) + 1
	n := len(o.s.processes)
	cover := make([]float64, n*kinds*o.cells)
	row := func(lane, kind int) []float64 {
		at := (lane*kinds + kind) * o.cells
		return cover[at : at+o.cells]
	}
	cell := float64(o.s.end-o.s.begin) / float64(o.cells)
	for _, b := range o.s.bars {
		if b.granted && b.lane >= 0 {
			spread(row(b.lane, kindClass(o.s.names[b.name].kind)), float64(b.grant-o.s.begin)/cell, float64(b.look-o.s.begin)/cell)
		}
	}
	var sums []float64 // what a process believes at once
	for lane := range n {
		for x := range o.cells {
			sum := 0.0
			for kind := range kinds {
				sum += row(lane, kind)[x]
			}
			if sum > 0 {
				sums = append(sums, sum)
			}
		}
	}
	if len(sums) == 0 {
		return
	}
	slices.Sort(sums)
	most := sums[len(sums)*98/100] // a few peaks don't make all else low
	for lane := range n {
		below := make([]float64, o.cells)
		for kind := range kinds {
			if path := area(below, row(lane, kind), most, 1000); path != "" {
				fmt.Fprintf(&o.out, `<svg x="0" width="100%%" y="%d" height="%d" viewBox="0 0 %d 1000" preserveAspectRatio="none"><path class="area k%d" d="%s"/></svg>`,
					lane*o.height+1, o.height-1, o.cells, kind, path)
			}
		}
	}
}

// spread adds the time from a to b to the cells it lies in.
func spread(cells []float64, a, b float64) {
	a, b = max(0, a), min(float64(len(cells)), b)
	for i := int(a); i < len(cells) && float64(i) < b; i++ {
		cells[i] += min(b, float64(i+1)) - max(a, float64(i))
	}
}

// area is the outline of values on top of those below, to which it adds them.
func area(below, values []float64, most, height float64) string {
	var up strings.Builder
	empty := true
	last := [2]int{-1, -1}
	for i, v := range values {
		y := [2]int{int(height * (1 - min(1, (below[i]+v)/most))), int(height * (1 - min(1, below[i]/most)))}
		below[i] += v
		empty = empty && v == 0
		if y == last {
			continue
		}
		if i > 0 {
			fmt.Fprintf(&up, "H%dV%dz", i, last[1])
		}
		fmt.Fprintf(&up, "M%d %dV%d", i, y[1], y[0])
		last = y
	}
	if empty {
		return ""
	}
	fmt.Fprintf(&up, "H%dV%dz", len(values), last[1])
	return up.String()
}
