package main

import (
	"encoding/json"
	"math"
	"strings"
)

// metrics are the numbers of one run of one peer, by name with the unit.
// Those that make no sense for it are missing or NaN.
type metrics map[string]float64

// MarshalJSON leaves out what JSON has no word for.
func (m metrics) MarshalJSON() ([]byte, error) {
	finite := make(map[string]float64, len(m))
	for k, v := range m {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite[k] = v
		}
	}
	return json.Marshal(finite)
}

// get returns NaN for what is missing.
func (m metrics) get(name string) float64 {
	if v, ok := m[name]; ok {
		return v
	}
	return math.NaN()
}

const callPrefix = "server_calls_"

// calls notes which commands the server has run between two looks at it,
// without the second look.
func (m metrics) calls(before, after usage) {
	for name, n := range after.Commands {
		n -= before.Commands[name]
		if name == "info" {
			n--
		}
		if n > 0 {
			m[callPrefix+name] = n
		}
	}
}

// server makes the calls of the server relative to one cycle or hand-over, of
// which there were n, and tells those that clients sent from those inside
// scripts.
func (m metrics) server(sent, n float64) {
	total := 0.0
	for name, calls := range m {
		if strings.HasPrefix(name, callPrefix) {
			total += calls
			m[name] = calls / n
		}
	}
	m["in_scripts"] = max(0, total-sent) / n
}
