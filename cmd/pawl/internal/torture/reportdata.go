package torture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	maxFindings = 2000    // drawn; a torture of what is broken finds the same thing again and again
	maxSpans    = 100_000 // faults, marks and hand-overs, of each
	maxTexts    = 2 << 20 // bytes of different errors and notes
	maxText     = 300     // bytes of one of them
)

// page is the data of the drawing. Times are microseconds since the beginning, and each
// list of numbers says one thing about each bar: a page with half a million of them is still
// a few megabytes.
type page struct {
	End      int64          `json:"end"`
	Lanes    []pageLane     `json:"lanes"`
	Names    [][3]any       `json:"names"` // name, kind, least token
	Ends     []string       `json:"ends"`
	Classes  []class        `json:"classes"`
	Texts    []string       `json:"texts"`
	Faults   [][5]any       `json:"faults"` // lane, what, from, to, text
	Lives    [][3]int64     `json:"lives"`  // lane, from, to
	Gone     [][3]int64     `json:"gone"`
	Marks    [][5]any       `json:"marks"`
	Links    [][6]int64     `json:"links"` // lane, track, time; and of the adopter
	Findings []pageFinding  `json:"findings"`
	texts    map[string]int // in Texts
	classes  map[class]int  // in Classes
	room     int            // for texts
	begin    int64
}

type pageLane struct {
	Process int   `json:"p"`
	Tracks  []int `json:"tracks"` // bars of each
	// Of each bar: when it was granted, after the one before it in its track; how long it
	// waited; how long from there to the last look; from there to the end; name; token above
	// the least of its name; class; milliseconds from the last look to the deadline.
	Start, Wait, Hold, Tail, Name, Token, Class, Deadline column
}

// class is what many bars have in common. In JSON it's a list.
type class struct {
	ended, life, writes, refused, finding int
	units, limit                          int64
	way, err                              int
	granted                               bool
}

func (c class) MarshalJSON() ([]byte, error) {
	granted := 0
	if c.granted {
		granted = 1
	}
	return json.Marshal([]int64{
		int64(c.ended), int64(c.life), int64(c.writes), int64(c.refused), int64(c.finding), c.units, c.limit,
		int64(c.way), int64(c.err), int64(granted),
	})
}

type pageFinding struct {
	At    int64  `json:"at"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	Rule  string `json:"rule"`
	Name  string `json:"name"`
	Lanes []int  `json:"lanes"`
}

// column is a list of numbers, made a JSON array without a slice of its own.
type column struct{ bytes.Buffer }

func (c *column) add(n int64) {
	if c.Len() > 0 {
		c.WriteByte(',')
	}
	c.Write(strconv.AppendInt(c.AvailableBuffer(), n, 10))
}

func (l pageLane) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	tracks, err := json.Marshal(l.Tracks)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, `{"p":%d,"tracks":%s`, l.Process, tracks)
	for _, c := range []struct {
		key string
		c   *column
	}{
		{"s", &l.Start}, {"w", &l.Wait}, {"b", &l.Hold}, {"e", &l.Tail},
		{"n", &l.Name}, {"k", &l.Token}, {"c", &l.Class}, {"d", &l.Deadline},
	} {
		fmt.Fprintf(&out, `,"%s":[%s]`, c.key, c.c.Bytes())
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// draw makes the page's data of the story, with at most limit bytes for the bars, and says what
// was left out.
func (s *story) draw(findings []Finding, limit int) (data []byte, left string, err error) {
	p := &page{
		begin: s.begin, End: max(1, (s.end-s.begin)/1000), Ends: endTexts, texts: map[string]int{}, classes: map[class]int{},
		room: min(maxTexts, limit/8), Texts: []string{""},
	}
	p.texts[""] = 0
	p.findings(s, findings)
	base := make([]int64, len(s.names))
	for i := range base {
		base[i] = math.MaxInt64
	}
	for _, b := range s.bars {
		if b.granted {
			base[b.name] = min(base[b.name], b.token)
		}
	}
	for i, n := range s.names {
		if base[i] == math.MaxInt64 {
			base[i] = 0
		}
		p.Names = append(p.Names, [3]any{shorten(n.name), n.kind, strconv.FormatInt(base[i], 10)})
	}
	p.Faults = p.spans(s.faults, true, limit)
	p.Marks = p.spans(s.marks, true, limit)
	p.Lives, p.Gone = p.plain(s.lives), p.plain(s.gone)
	for _, l := range s.links[:min(len(s.links), maxSpans, limit/500)] {
		p.Links = append(p.Links, [6]int64{
			int64(l.from.lane), int64(l.from.track), p.micro(l.from.end), int64(l.to.lane), int64(l.to.track), p.micro(l.to.grant),
		})
	}
	kept, left, err := s.fit(p, base, findings, limit)
	if err != nil {
		return nil, "", err
	}
	p.lay(s, kept, base)
	data, err = json.Marshal(p)
	return data, left, err
}

func (p *page) micro(at int64) int64 { return int64(math.Floor(float64(at-p.begin) / 1000)) }

func (p *page) text(s string) int {
	s = shorten(s)
	i, ok := p.texts[s]
	if ok {
		return i
	}
	if p.room < len(s) {
		s = "(not kept: too many different texts)"
		if i, ok := p.texts[s]; ok {
			return i
		}
	}
	p.room -= len(s)
	i = len(p.Texts)
	p.Texts = append(p.Texts, s)
	p.texts[s] = i
	return i
}

// shorten makes s valid UTF-8 of at most maxText bytes and a dot or three.
func shorten(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		s = s[:max(0, len(s)-1)] + "…"
	}
	return s
}

func (p *page) spans(spans []span, texts bool, limit int) [][5]any {
	most := min(len(spans), maxSpans, limit/500)
	out := make([][5]any, 0, most)
	for i := range most {
		sp := spans[i*len(spans)/most]
		out = append(out, [5]any{sp.lane, sp.what, p.micro(sp.from), p.micro(sp.to), p.text(sp.note)})
	}
	return out
}

func (p *page) plain(spans []span) [][3]int64 {
	out := [][3]int64{}
	for _, sp := range spans {
		out = append(out, [3]int64{int64(sp.lane), p.micro(sp.from), p.micro(sp.to)})
	}
	return out
}

func (p *page) findings(s *story, findings []Finding) {
	p.Findings = []pageFinding{}
	for _, f := range findings[:min(len(findings), maxFindings)] {
		from, to := f.span()
		out := pageFinding{At: p.micro(f.At), From: p.micro(from), To: p.micro(to), Rule: f.Rule, Name: shorten(f.Name), Lanes: []int{}}
		for _, e := range f.Events {
			if lane := s.lane(e.Process); lane >= 0 && !slices.Contains(out.Lanes, lane) {
				out.Lanes = append(out.Lanes, lane)
			}
		}
		p.Findings = append(p.Findings, out)
	}
}

// span is the time that the finding and its events take.
func (f Finding) span() (from, to int64) {
	from, to = f.At, f.At
	for _, e := range f.Events {
		if e.At != 0 {
			from, to = min(from, e.At), max(to, e.At, e.End)
		}
	}
	return from, to
}

func (p *page) class(b *bar) int {
	c := class{
		ended: b.ended, life: b.life, writes: b.writes, refused: b.refused, finding: b.finding, units: b.units, limit: b.limit,
		way: p.text(b.way), err: p.text(b.err), granted: b.granted,
	}
	i, ok := p.classes[c]
	if !ok {
		i = len(p.Classes)
		p.Classes = append(p.Classes, c)
		p.classes[c] = i
	}
	return i
}

// lay writes the bars that are kept to their lanes.
func (p *page) lay(s *story, kept func(i int) bool, base []int64) {
	p.Lanes = make([]pageLane, len(s.processes))
	for i, process := range s.processes {
		p.Lanes[i].Process = process
		p.Lanes[i].Tracks = make([]int, s.tracks[i])
	}
	lane, track, before := -1, -1, int64(0)
	for i, b := range s.bars {
		if b.lane < 0 || !kept(i) {
			continue
		}
		if b.lane != lane || b.track != track {
			lane, track, before = b.lane, b.track, 0
		}
		l := &p.Lanes[lane]
		l.Tracks[track]++
		at := p.micro(b.grant)
		n := p.numbers(b, base)
		l.Start.add(at - before)
		l.Wait.add(n[0])
		l.Hold.add(n[1])
		l.Tail.add(n[2])
		l.Name.add(n[3])
		l.Token.add(n[4])
		l.Class.add(n[5])
		l.Deadline.add(n[6])
		before = at
	}
}

func (p *page) numbers(b *bar, base []int64) [7]int64 {
	grant, look := p.micro(b.grant), p.micro(b.look)
	token, deadline := int64(0), int64(0)
	if b.granted {
		token = b.token - base[b.name]
		if b.until != 0 {
			deadline = (b.until - b.look) / int64(time.Millisecond)
		}
	}
	return [7]int64{
		grant - p.micro(b.ask), look - grant, p.micro(b.end) - look, int64(b.name), token, int64(p.class(b)), deadline,
	}
}
