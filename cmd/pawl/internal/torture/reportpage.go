package torture

import (
	"fmt"
	"html"
	"strings"
)

// The page is written without html/template: that looks methods up by their names, for
// which the linker would keep all methods of all types, half as much again as the whole
// command is without.

// markup writes HTML.
type markup struct{ strings.Builder }

// add writes HTML whose verbs stand for values. They are escaped, if they are not raw.
func (p *markup) add(format string, values ...any) {
	for i, v := range values {
		switch v.(type) {
		case raw, int:
		default:
			values[i] = html.EscapeString(fmt.Sprint(v))
		}
	}
	fmt.Fprintf(&p.Builder, format, values...)
}

// raw is what is HTML, style or script itself.
type raw string

// either returns yes if cond is true, else no.
func either(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

// html returns the page.
func (v *view) html() string {
	p := new(markup)
	p.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '%s'; script-src '%s'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>pawl torture: %s</title>
<style>%s</style>
</head>
<body>
`, v.StyleHash, v.ScriptHash, either(v.Found > 0, fmt.Sprintf("%d found", v.Found), "clean"), raw(v.Style))
	v.header(p)
	v.findings(p)
	if len(v.Notes) > 0 {
		p.add("<ul class=\"notes\">")
		for _, note := range v.Notes {
			p.add("<li>%s</li>", note)
		}
		p.add("</ul>\n")
	}
	p.add("<section class=\"tables\" aria-label=\"Counts\">\n<dl class=\"counts\">")
	rows(p, v.Counts)
	p.add("</dl>\n<dl class=\"counts faults\" aria-label=\"Faults\">")
	rows(p, v.Faults)
	p.add("</dl>\n</section>\n")
	v.timeline(p)
	p.add("<script type=\"application/json\" id=\"data\">%s</script>\n<script>%s</script>\n</body>\n</html>\n", raw(v.Data), raw(v.Script))
	return p.String()
}

func (v *view) header(p *markup) {
	p.add("<header>\n<h1>pawl torture</h1>\n")
	if v.Found > 0 {
		p.add(`<p class="verdict bad"><strong>%s %s</strong> in %s`, count(int64(v.Found)), either(v.Found == 1, "finding", "findings"), v.Lasted)
	} else {
		p.add(`<p class="verdict good"><strong>Clean</strong> after %s`, v.Lasted)
	}
	if v.Options.Break != "" {
		p.add(", %swith <code>--break %s</code>", either(v.Found > 0, "", "although "), v.Options.Break)
	}
	p.add("</p>\n<dl class=\"facts\">\n")
	fact := func(name, value string) { p.add("<div><dt>%s</dt><dd>%s</dd></div>\n", name, value) }
	fact("store", either(v.Public != "", v.Public, "not shown"))
	fact("started", v.Started)
	fact("processes", fmt.Sprint(len(v.Processes)))
	if v.Options.TTL > 0 {
		fact("TTL", v.Options.TTL.String())
	}
	fact("seed", fmt.Sprint(v.Options.Seed))
	p.add("</dl>\n<p class=\"repeat\"><code id=\"repeat\">%s</code></p>\n</header>\n", v.Repeat)
}

func (v *view) findings(p *markup) {
	if len(v.Findings) == 0 {
		return
	}
	p.add("<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">Findings</h2>\n<ol class=\"findings\">\n")
	for i := range v.Findings {
		v.Findings[i].html(p, i+1)
	}
	p.add("</ol>\n")
	if v.Found > len(v.Findings) {
		p.add("<p class=\"quiet\">The first %d of %s; <code>--json</code> has them all.</p>\n", len(v.Findings), count(int64(v.Found)))
	}
	p.add("</section>\n")
}

func (f *found) html(p *markup, number int) {
	p.add("<li id=\"finding-%[1]d\">\n<p><a href=\"#mark-%[1]d\"><b class=\"rule\">%[2]s</b> <span class=\"num\">%[3]s s</span>", number, f.Rule, f.Seconds)
	if f.Name != "" {
		p.add(` <span class="name">%s</span>`, f.Name)
	}
	p.add("</a></p>\n<p class=\"text\">%s</p>\n", f.Text)
	if n := len(f.Rows); n > 0 {
		p.add("<details><summary>%d %s it</summary>\n", n, either(n == 1, "event shows", "events show"))
		p.add("<table class=\"events\"><thead><tr><th>second</th><th>who</th><th>what</th><th>name</th><th>details</th></tr></thead><tbody>\n")
		for _, r := range f.Rows {
			p.add("<tr><td class=\"num\">%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", r.Seconds, r.Who, r.What, r.Name, r.Details)
		}
		p.add("</tbody></table>")
		if f.More > 0 {
			p.add(`<p class="quiet">and %d more</p>`, f.More)
		}
		p.add("\n</details>\n")
	}
	p.add("</li>\n")
}

func rows(p *markup, all []row) {
	for _, r := range all {
		p.add("<div%s><dt>%s</dt><dd>%s</dd></div>", raw(either(r.Value == "0", ` class="none"`, "")), r.Name, r.Value)
	}
}

func (v *view) timeline(p *markup) {
	p.add(`<section aria-labelledby="timeline" class="timeline">
<h2 id="timeline">Time line</h2>
<noscript><p class="quiet">Without JavaScript there is this overview only: how much of the time each process believed that it had locks, by kind.</p></noscript>
`)
	if v.Left != "" {
		p.add("<p class=\"left\">%s</p>\n", v.Left)
	}
	p.add("<div class=\"overview\" id=\"overview\">\n<svg class=\"labels\" width=\"88\" height=\"%d\" aria-hidden=\"true\">", v.OverviewHeight)
	for _, l := range v.Labels {
		p.add(`<text x="78" y="%d">process %d</text>`, l.Y, l.Process)
	}
	p.add("</svg>\n<div class=\"whole\" id=\"whole\">%s<div id=\"window\" hidden></div></div>\n<span></span>\n", raw(v.Overview))
	p.add(`<svg class="ticks" width="100%%" height="16" aria-hidden="true">`)
	for _, t := range v.Ticks {
		p.add(`<text%s x="%s" y="12">%s</text>`, raw(either(t.Last, ` class="last"`, "")), t.At, t.Text)
	}
	p.add("</svg>\n</div>\n")
	p.add(`<div class="tools" id="tools" hidden>
<span class="group"><button id="left" title="earlier (←)">←</button><button id="right" title="later (→)">→</button><button id="in" title="closer (+)">+</button><button id="out" title="wider (−)">−</button><button id="all" title="everything (0)">all</button></span>
`)
	if v.Found > 0 {
		p.add("<span class=\"group\"><button id=\"previous\" title=\"previous finding (p)\">↑</button><button id=\"next\" title=\"next finding (n)\">↓</button> <span class=\"quiet\">finding <span id=\"which\">–</span> of %s</span></span>\n", count(int64(v.Found)))
	}
	p.add(`<span class="group" id="kinds" role="group" aria-label="kinds"></span>
<label class="group">name <input id="name" type="search" list="names" placeholder="all" autocomplete="off" spellcheck="false"></label><datalist id="names"></datalist>
<output id="where"></output>
</div>
<div id="chart" class="chart" hidden tabindex="0" role="application" aria-label="Time line of the processes" aria-describedby="keys">
<svg id="axis" height="26" aria-hidden="true"></svg>
<svg id="plot" aria-hidden="true"></svg>
<div id="tip" hidden></div>
</div>
<p id="said" class="hidden" role="status"></p>
<div class="legend" id="legend" hidden></div>
<p id="keys" class="quiet keys" hidden>Wheel or <kbd>+</kbd> <kbd>−</kbd> to zoom, drag or <kbd>←</kbd> <kbd>→</kbd> to move, <kbd>0</kbd> for everything, <kbd>Shift</kbd> with arrows from bar to bar, <kbd>Esc</kbd> to let go%s. Times are seconds since the beginning.</p>
</section>
`, raw(either(v.Found > 0, ", <kbd>n</kbd> <kbd>p</kbd> for findings", "")))
}
