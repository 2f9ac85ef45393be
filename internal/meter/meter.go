// Package meter counts what metrics tell, and writes it in the text format of
// Prometheus, which is a page long: a client library would be the largest dependency of
// this module.
//
// Values of labels are kept for ever: whoever counts sees to it that there are few.
package meter

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ContentType is that of the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Metric is a metric with all its values.
type Metric interface {
	// Append appends the text of the metric.
	Append(text []byte) []byte
}

// family is what all metrics have.
type family struct {
	name, help string
	labels     []string
}

func (f *family) head(text []byte, kind string) []byte {
	text = append(append(append(append(text, "# HELP "...), f.name...), ' '), escapeHelp.Replace(f.help)...)
	return append(append(append(append(append(text, "\n# TYPE "...), f.name...), ' '), kind...), '\n')
}

// sample appends a line; more are pairs of names and values that follow those of key.
func (f *family) sample(text []byte, suffix, key string, value float64, more ...string) []byte {
	text = append(append(text, f.name...), suffix...)
	open := byte('{')
	label := func(name, value string) {
		text = append(append(append(text, open), name...), `="`...)
		text = append(append(text, escapeValue.Replace(value)...), '"')
		open = ','
	}
	if len(f.labels) > 0 {
		for i, v := range strings.Split(key, separator) {
			label(f.labels[i], v)
		}
	}
	for i := 0; i < len(more); i += 2 {
		label(more[i], more[i+1])
	}
	if open == ',' {
		text = append(text, '}')
	}
	return append(strconv.AppendFloat(append(text, ' '), value, 'g', -1, 64), '\n')
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// separator is between values in a key: it is in no UTF-8.
const separator = "\xff"

func (f *family) key(values []string) string {
	if len(values) != len(f.labels) {
		panic("meter: " + f.name + " has other labels")
	}
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values, separator)
}

// Vec is a metric with one number for each combination of values of its labels. Its
// methods may be called from several goroutines at once.
type Vec struct {
	family
	kind string

	mu     sync.Mutex
	values map[string]float64
}

// NewCounter returns a counter: what only grows.
func NewCounter(name, help string, labels ...string) *Vec {
	return newVec("counter", name, help, labels)
}

// NewGauge returns a gauge: what goes up and down.
func NewGauge(name, help string, labels ...string) *Vec { return newVec("gauge", name, help, labels) }

func newVec(kind, name, help string, labels []string) *Vec {
	v := &Vec{family: family{name, help, labels}, kind: kind, values: make(map[string]float64)}
	if len(labels) == 0 {
		v.Add(0)
	}
	return v
}

// Add adds n. Adding 0 makes the number known before anything was counted.
func (v *Vec) Add(n float64, values ...string) {
	key := v.key(values)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values[key] += n
}

// Set sets the number, and returns v.
func (v *Vec) Set(n float64, values ...string) *Vec {
	key := v.key(values)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values[key] = n
	return v
}

// Append implements Metric.
func (v *Vec) Append(text []byte) []byte {
	text = v.head(text, v.kind)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(v.values)) {
		text = v.sample(text, "", key, v.values[key])
	}
	return text
}

// Histogram counts spans of time by how long they are. Its methods may be called from
// several goroutines at once.
type Histogram struct {
	family
	bounds []float64 // in seconds

	mu     sync.Mutex
	values map[string]*spans
}

type spans struct {
	counts []uint64 // by bound; the last one: longer than all
	sum    float64
}

// Bounds of spans, in seconds.
var (
	Short = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}        // of a request
	Long  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 900, 3600, 14400} // of people and their jobs
)

// NewHistogram returns a histogram.
func NewHistogram(name, help string, bounds []float64, labels ...string) *Histogram {
	return &Histogram{family: family{name, help, labels}, bounds: bounds, values: make(map[string]*spans)}
}

// Observe counts a span.
func (h *Histogram) Observe(d time.Duration, values ...string) {
	seconds := max(d.Seconds(), 0)
	i, _ := slices.BinarySearch(h.bounds, seconds) // a bound belongs to what is below it
	key := h.key(values)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.of(key)
	s.counts[i]++
	s.sum += seconds
}

// Declare makes a combination of values known before anything was counted.
func (h *Histogram) Declare(values ...string) {
	key := h.key(values)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(key)
}

func (h *Histogram) of(key string) *spans {
	s := h.values[key]
	if s == nil {
		s = &spans{counts: make([]uint64, len(h.bounds)+1)}
		h.values[key] = s
	}
	return s
}

// Append implements Metric.
func (h *Histogram) Append(text []byte) []byte {
	text = h.head(text, "histogram")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(h.values)) {
		s, n := h.values[key], uint64(0)
		for i, bound := range h.bounds {
			n += s.counts[i]
			text = h.sample(text, "_bucket", key, float64(n), "le", strconv.FormatFloat(bound, 'g', -1, 64))
		}
		n += s.counts[len(h.bounds)]
		text = h.sample(text, "_bucket", key, float64(n), "le", "+Inf")
		text = h.sample(text, "_sum", key, s.sum)
		text = h.sample(text, "_count", key, float64(n))
	}
	return text
}

// Append appends the text of all metrics.
func Append(text []byte, all ...Metric) []byte {
	for _, m := range all {
		text = m.Append(text)
	}
	return text
}
