package torture

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// parsed is a page as a browser sees it.
type parsed struct {
	raw  string
	root *html.Node
}

func parsePage(t *testing.T, r *Result, limit int) *parsed {
	t.Helper()
	var out bytes.Buffer
	if err := r.writeHTML(&out, limit); err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("PAWL_TEST_PAGES"); dir != "" { // to be looked at
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+".html"), out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := html.Parse(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return &parsed{out.String(), root}
}

func (p *parsed) all(tag string) []*html.Node {
	var found []*html.Node
	for n := range p.root.Descendants() {
		if n.Type == html.ElementNode && (tag == "*" || n.Data == tag) {
			found = append(found, n)
		}
	}
	return found
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var s strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			s.WriteString(d.Data)
		}
	}
	return s.String()
}

func (p *parsed) byID(id string) *html.Node {
	for _, n := range p.all("*") {
		if attribute(n, "id") == id {
			return n
		}
	}
	return nil
}

type pageData struct {
	Names   [][3]string
	Classes [][]int
	Texts   []string
	Links   [][]int
	Lanes   []struct {
		Tracks        []int
		S, W, B, E, C []int64
	}
}

func (p *parsed) data(t *testing.T) pageData {
	t.Helper()
	var d pageData
	if err := json.Unmarshal([]byte(text(p.byID("data"))), &d); err != nil {
		t.Fatal(err)
	}
	for _, l := range d.Lanes {
		n := 0
		for _, bars := range l.Tracks {
			n += bars
		}
		for _, column := range [][]int64{l.S, l.W, l.B, l.E, l.C} {
			if len(column) != n {
				t.Fatalf("a column has %d numbers for %d bars", len(column), n)
			}
		}
	}
	return d
}

func TestReportFindingsAreLinked(t *testing.T) {
	r := made(4, 2, 400, 10*time.Second)
	r.found(3)
	p := parsePage(t, r, reportLimit)
	linked := 0
	for _, a := range p.all("a") {
		to := strings.TrimPrefix(attribute(a, "href"), "#")
		if to == "" || p.byID(to) == nil {
			t.Errorf("a link to %q leads nowhere", to)
		}
		linked++
	}
	if linked != 3 {
		t.Errorf("%d findings are linked, want 3", linked)
	}
	all := text(p.root)
	for _, want := range []string{"3 findings", r.Verdict.Findings[0].Text, "--seed 42", "redis://127.0.0.1:6379/0", count(int64(r.Verdict.Counts.Grants))} {
		if !strings.Contains(all, want) {
			t.Errorf("the page doesn't say %q", want)
		}
	}
	flagged := 0
	for _, c := range p.data(t).Classes {
		if c[4] != 0 {
			flagged++
		}
	}
	if flagged == 0 {
		t.Error("no bar is that of a finding")
	}
}

func TestReportClean(t *testing.T) {
	for name, r := range map[string]*Result{"empty": {}, "many": made(64, 2, 2000, 5*time.Second)} {
		t.Run(name, func(t *testing.T) {
			p := parsePage(t, r, reportLimit)
			if !strings.Contains(text(p.root), "Clean") || p.byID("findings") != nil || len(p.all("a")) != 0 {
				t.Error("the page doesn't say that nothing was found")
			}
			p.data(t)
		})
	}
}

// What names, errors and findings say is foreign text.
func TestReportEscapes(t *testing.T) {
	evil := `</script></title></style><b id=evil>"'&<!--<script>` + "\u2028\x00\xff"
	r := made(2, 1, 50, 5*time.Second)
	for i := range r.History {
		e := &r.History[i]
		e.Name, e.Note, e.Handle = e.Name+evil, evil, e.Handle+evil
		if e.What == Ask {
			e.Kind, e.Way = evil, evil
		}
		if e.What == Released || e.What == Ended {
			e.Err = evil
		}
		if e.What == Fault {
			e.Fault = evil
		}
	}
	r.found(1)
	f := &r.Verdict.Findings[0]
	f.Rule, f.Name, f.Text = evil, evil, evil
	r.Options.Store, r.Options.Break, r.Options.Kinds = "redis://h/"+evil, evil, []string{evil}
	r.Verdict.Counts.Faults[evil] = 1
	p := parsePage(t, r, reportLimit)
	if p.byID("evil") != nil {
		t.Error("foreign text became an element")
	}
	if n := len(p.all("script")); n != 2 {
		t.Errorf("%d scripts, want the data and one more", n)
	}
	d := p.data(t)
	if !strings.Contains(d.Names[0][0], `</script></title></style><b id=evil>"'&<!--<script>`) {
		t.Errorf("the name came out as %q", d.Names[0][0])
	}
}

func TestReportIsSelfContained(t *testing.T) {
	r := made(3, 2, 200, 5*time.Second)
	r.found(2)
	p := parsePage(t, r, reportLimit)
	for _, n := range p.all("*") {
		for _, a := range n.Attr {
			switch a.Key {
			case "src", "srcset", "data", "action", "style":
				t.Errorf("<%s> has %s=%q", n.Data, a.Key, a.Val)
			case "href":
				if !strings.HasPrefix(a.Val, "#") {
					t.Errorf("<%s> refers to %q", n.Data, a.Val)
				}
			}
			if strings.HasPrefix(a.Key, "on") {
				t.Errorf("<%s> has %s", n.Data, a.Key)
			}
		}
		if n.Data == "link" || n.Data == "img" || n.Data == "iframe" {
			t.Errorf("a <%s>", n.Data)
		}
	}
	own := strings.ReplaceAll(p.raw, "http://www.w3.org/2000/svg", "") // a name, which nobody fetches
	if found := regexp.MustCompile(`(?i)https?://|@import|url\([^#]|fetch\(|XMLHttpRequest|eval\(|innerHTML`).FindString(own); found != "" {
		t.Errorf("the page has %q", found)
	}
	policy := ""
	for _, m := range p.all("meta") {
		if attribute(m, "http-equiv") == "Content-Security-Policy" {
			policy = attribute(m, "content")
		}
	}
	script, style := text(p.all("script")[1]), text(p.all("style")[0])
	for _, want := range []string{"default-src 'none'", hash(script), hash(style)} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q doesn't have %q", policy, want)
		}
	}
}

func TestReportHidesPasswords(t *testing.T) {
	for _, store := range []string{"redis://user:secret@h:1/0", "mysql://u:secret@h/db", "no url :secret@", "etcd://u:secret@h"} {
		r := made(1, 1, 10, time.Second)
		r.Options.Store = store
		if p := parsePage(t, r, reportLimit); strings.Contains(p.raw, "secret") {
			t.Errorf("the password of %s is on the page", store)
		}
	}
}

func TestReportLimit(t *testing.T) {
	r := made(4, 4, 30_000, 2*time.Minute)
	r.found(2)
	full := parsePage(t, r, reportLimit)
	if strings.Contains(full.raw, "or the page would be too large") {
		t.Error("a page with room for everything says that it has not")
	}
	const limit = 600_000
	p := parsePage(t, r, limit)
	if len(p.raw) > limit+limit/20 {
		t.Errorf("the page has %d bytes, the limit is %d", len(p.raw), limit)
	}
	if len(p.raw) < limit/5*4 {
		t.Errorf("the page has %d bytes only: the limit is %d", len(p.raw), limit)
	}
	said := regexp.MustCompile(`has ([\d,]+) of ([\d,]+) bars`).FindStringSubmatch(text(p.root))
	if said == nil || said[2] != count(int64(len(tell(r).bars))) {
		t.Fatalf("the page says of what's left out: %q", said)
	}
	of := func(p *parsed) (found, all int) {
		d := p.data(t)
		for _, l := range d.Lanes {
			for _, c := range l.C {
				if d.Classes[c][4] != 0 {
					found++
				}
				all++
			}
		}
		return found, all
	}
	allFound, _ := of(full)
	found, all := of(p)
	if found != allFound || found == 0 {
		t.Errorf("%d bars of findings are left of %d", found, allFound)
	}
	if count(int64(all)) != said[1] {
		t.Errorf("the page has %d bars and says %s", all, said[1])
	}
	if full.byID("overview") == nil || text(full.byID("whole")) != text(p.byID("whole")) {
		t.Error("the overview isn't that of everything")
	}
}

func TestReportCommand(t *testing.T) {
	o := Options{
		Store: "file:///tmp/it's here", For: time.Minute, Processes: 8, Faults: []string{"kill", "cut"}, Kinds: []string{"rw"},
		Seed: 7, Break: "margin", Crowd: 1000,
	}
	want := `pawl torture --store 'file:///tmp/it'\''s here' --for 1m0s --processes 8 --faults kill,cut --kinds rw --crowd 1000 --break margin --seed 7`
	if got := repeat(o); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -100: "-100"} {
		if got := count(n); got != want {
			t.Errorf("%d is written %s", n, got)
		}
	}
}
