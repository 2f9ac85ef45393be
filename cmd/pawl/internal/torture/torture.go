package torture

import (
	"time"
)

// Options of a torture.
type Options struct {
	Store     string        // URL
	For       time.Duration // how long it locks and is hurt
	Processes int
	TTL       time.Duration // of the locks
	Faults    []string      // of AllFaults
	Kinds     []string      // of AllKinds
	Seed      uint64        // of what is done, and of the faults; the order of events differs each time
	Break     string        // what of pawl is broken on purpose, of AllBreaks; empty: nothing
	Crowd     int           // goroutines that wait for one more name all the while, in all processes together; 0: none
}

// What can be chosen.
var (
	AllFaults = []string{"kill", "pause", "late", "cut", "slow", "dark"}
	AllKinds  = []string{"mutex", "rw", "semaphore"}
)

// Config is what a process of a torture is told by its parent.
type Config struct {
	Process  int           `json:"process"`
	Life     int           `json:"life"`
	Store    string        `json:"store"` // behind the proxies
	Prefix   string        `json:"prefix"`
	TTL      time.Duration `json:"ttl"`
	Kinds    []string      `json:"kinds"`
	Seed     uint64        `json:"seed"`
	Start    int64         `json:"start"`    // of the torture, by the machine's clock: see Generation
	Resource string        `json:"resource"` // address of the fenced resource
	Break    string        `json:"break,omitempty"`
	Crowd    int           `json:"crowd,omitempty"`
	Late     bool          `json:"late,omitempty"` // the fault late is among those chosen
}

// Generation is how long a name is used. Then another takes its place: most
// histories are short enough to be checked, and names are fresh, or come back, or are
// given up while others wait.
const Generation = 5 * time.Second

// Task is a line that the parent writes to a process.
type Task struct {
	// Adopt is what another process handed over: its Released event. Two processes
	// may be told of one.
	Adopt *Event `json:"adopt,omitempty"`
	// Late is how long some requests are carried out late.
	Late time.Duration `json:"late,omitempty"`
}

// Result of a torture.
type Result struct {
	Options Options
	Started time.Time
	Begin   int64 // by the machine's clock
	End     int64
	History []Event
	Verdict *Verdict
}

// Verdict is what Judge found.
type Verdict struct {
	Findings []Finding `json:"findings"`
	Notes    []string  `json:"notes,omitempty"` // what could not be judged, or is left out
	Counts   Counts    `json:"counts"`
}

// Finding is something that must not be.
type Finding struct {
	Rule   string  `json:"rule"` // exclusion, told, lost, tokens, fence, linearizable, adoption, stuck, leftover, process
	Name   string  `json:"name,omitempty"`
	At     int64   `json:"at"`
	Text   string  `json:"text"`   // a sentence or two: who, with which tokens, when (in seconds since the beginning)
	Events []Event `json:"events"` // that show it, a few
}

// Counts is what happened.
type Counts struct {
	Grants    int            `json:"grants"`
	Failed    int            `json:"failed"`
	Lost      int            `json:"lost"` // leases that ended before Unlock
	HandOvers int            `json:"hand_overs"`
	Adopted   int            `json:"adopted"`
	Changed   int            `json:"changed"` // downgrades and upgrades
	Limits    int            `json:"limits"`
	Forced    int            `json:"forced"`
	Writes    int            `json:"writes"`
	Refused   int            `json:"refused"` // writes, by the fence
	Faults    map[string]int `json:"faults"`  // by kind
}
