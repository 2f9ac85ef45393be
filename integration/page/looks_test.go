package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// busy fills a store as one is at night.
func busy(t *testing.T) *memstore.Store {
	store := memory(t)
	for i, name := range []string{"backup/db-1", "backup/db-2", "cron/report", "deploy/prod", "deploy/stage", "images/resize", "mail/digest", "tenants/7/migrate"} {
		enter(t, store, claim(name, fmt.Sprintf("3f0c9e1%d", i), []string{"nightly", "ci", "worker"}[i%3]))
		store.Advance(time.Duration(97+61*i) * time.Second)
	}
	enter(t, store, semaphore(claim("downloads", "b7d1e4c1", "mirror"), 2), semaphore(claim("downloads", "b7d1e4c2", "mirror"), 2))
	for i := range 4 {
		enter(t, store, claim("deploy/prod", fmt.Sprintf("a2b4c6d%d", i), "ci"), semaphore(claim("downloads", fmt.Sprintf("c3d5e7f%d", i), "mirror"), 2))
		store.Advance(time.Duration(11+7*i) * time.Second)
	}
	return store
}

// No part of the page is wider than the window, on a telephone neither, with names as
// long as they can be; what is dark is dark, and can be read.
func TestLooks(t *testing.T) {
	t.Parallel()
	store := busy(t)
	long := strings.Repeat("x", driver.MaxName)
	c := claim(long, strings.Repeat("y", 64), strings.Repeat("z", driver.MaxLabel))
	c.Owner.Host = strings.Repeat("h", driver.MaxLabel)
	second := c
	second.ID = strings.Repeat("w", 64)
	enter(t, store, c, second)
	url, _ := serve(t, store, &pawlhttp.Options{AllowActions: true, Title: "redis://" + strings.Repeat("r", 100)})
	for _, width := range []int{360, 1280} {
		for _, dark := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d dark=%v", width, dark), func(t *testing.T) {
				t.Parallel()
				v := open(t, url, width, dark)
				v.shows("names", "deploy/prod")
				v.fits("all names", width, dark)
				eval[any](v, fmt.Sprintf("location.hash = '#/%s'", long))
				v.shows("holders", "yyyy")
				v.shows("queue", "wwww")
				v.until(`document.querySelectorAll('#line .bar').length > 0`)
				v.fits("a name", width, dark)
				v.click("force")
				v.shows("confirm", "zzzz")
				v.fits("the confirmation", width, dark)
			})
		}
	}
}

// fits checks the page as it is shown.
func (v *view) fits(what string, width int, dark bool) {
	v.Helper()
	if wide := eval[int](v, `document.scrollingElement.scrollWidth`); wide > width {
		v.Errorf("%s: %d wide in a window of %d: %v", what, wide, width, eval[[]string](v, fmt.Sprintf(
			`[...document.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > %d).map((e) => e.outerHTML.slice(0, 80))`, width)))
	}
	for _, bad := range eval[[]string](v, contrasts) {
		v.Errorf("%s cannot be read: %s", what, bad)
	}
	if light := eval[float64](v, `((c) => (+c[0] + +c[1] + +c[2]) / 3)(getComputedStyle(document.body).backgroundColor.match(/\d+/g))`); light < 64 != dark {
		v.Errorf("%s: dark is %v, and the background's brightness %v of 255", what, dark, light)
	}
}

// contrasts are the texts whose contrast to what is behind them is less than 4.5.
const contrasts = `(() => {
	const rgba = (s) => { const c = s.match(/[\d.]+/g).map(Number); return c.length > 3 ? c : [...c, 1]; };
	const light = (c) => c.slice(0, 3).map((x) => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4).reduce((a, x, i) => a + x * [0.2126, 0.7152, 0.0722][i], 0);
	const bad = [];
	for (const e of document.body.querySelectorAll('*')) {
		if (!e.checkVisibility() || e.disabled || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		let back = e;
		while (back && rgba(getComputedStyle(back).backgroundColor)[3] === 0) back = back.parentElement;
		const [a, b] = [light(rgba(getComputedStyle(e).color)), light(rgba(getComputedStyle(back || document.body).backgroundColor))].sort((x, y) => y - x);
		if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(((a + 0.05) / (b + 0.05)).toFixed(1) + ' ' + e.outerHTML.slice(0, 80));
	}
	return bad;
})()`

// All that can be done is done by the keyboard, and has a name for who cannot see it.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	store := busy(t)
	url, _ := serve(t, store, &pawlhttp.Options{AllowActions: true})
	v := open(t, url, 1280, false)
	v.shows("names", "deploy/prod")
	const here = `(document.activeElement.id || document.activeElement.closest('th')?.dataset.order || document.activeElement.title || document.activeElement.textContent)`
	reached := func() (all []string) {
		t.Helper()
		eval[any](v, `document.activeElement.blur()`)
		for range 100 {
			v.press("Tab")
			at := eval[string](v, here)
			if slices.Contains(all, at) && at == all[0] {
				break
			}
			all = append(all, at)
		}
		return all
	}
	want := func(got []string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if !slices.Contains(got, id) {
				t.Errorf("by the key Tab %s is not reached, but %q", id, got)
			}
		}
	}
	want(reached(), "skip", "search", "order", "reverse", "held", "name", "waited", "downloads", "deploy/prod")
	v.labelled()

	v.press("/")
	v.until(`document.activeElement === $('search')`)
	eval[any](v, `$('names').tBodies[0].querySelector('a').focus()`)
	first := eval[string](v, here)
	v.press("ArrowDown")
	if eval[string](v, here) == first {
		t.Errorf("the key ArrowDown stays at %s", first)
	}
	eval[any](v, `[...$('names').querySelectorAll('a')].find((a) => a.title === 'deploy/prod').focus()`)
	v.press("Enter")
	v.shows("holders", "3f0c9e13")
	v.until(`document.activeElement === $('name')`)
	want(reached(), "back", "force", "yield")
	v.labelled()

	eval[any](v, `$('force').focus()`)
	v.press("Enter")
	v.until(`document.activeElement === $('confirm-no')`)
	v.labelled()
	v.press("Escape")
	v.until(`!$('confirm').open && document.activeElement === $('force')`)
	v.press("Enter")
	v.until(`document.activeElement === $('confirm-no')`)
	v.press("Tab")
	v.until(`document.activeElement === $('confirm-yes')`)
	v.press("Enter")
	v.shows("done", "Taken from ")
	v.press("Escape")
	v.shows("names", "downloads")
}

// labelled checks that whatever can be used has a name for a screen reader.
func (v *view) labelled() {
	v.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	if err := v.Call("Accessibility.getFullAXTree", nil, &tree); err != nil {
		v.Fatal(err)
	}
	roles := make(map[string]int)
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		if n.Ignored {
			continue
		}
		roles[role]++
		switch role {
		case "button", "link", "textbox", "searchbox", "combobox", "spinbutton", "table", "dialog", "image", "columnheader":
			if name, _ := n.Name.Value.(string); strings.TrimSpace(name) == "" {
				v.Errorf("a %s has no name: %+v", role, n)
			}
		}
	}
	if roles["button"] == 0 {
		v.Errorf("what a screen reader is told has no button: %v", roles)
	}
}
