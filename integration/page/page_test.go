package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pawlhttp"
)

// evil is a name that is HTML, and is shown as the text that it is.
const evil = `<img src=x onerror="document.title='taken over'">`

func TestNames(t *testing.T) {
	t.Parallel()
	store := memory(t)
	enter(t, store, claim("deploy/prod", "claim-0001", "ci"))
	store.Advance(2 * time.Hour)
	enter(t, store, claim(evil, "claim-0002", evil), claim(evil, "claim-0003", "next"))
	store.Advance(time.Minute)
	enter(t, store, semaphore(claim("downloads", "claim-0004", "nightly"), 3), claim("deploy/prod", "claim-0005", "rollback"))
	url, _ := serve(t, store, &pawlhttp.Options{Title: "memory", Poll: time.Millisecond})
	v := open(t, url, 1280, false)

	// deploy/prod ran out meanwhile, and was granted to who came last.
	v.inOrder(evil, "deploy/prod", "downloads")
	v.shows("store", "memory")
	v.shows("counts", "3 names, 3 held, 1 waiting")
	v.shows("top-held", evil, "1m ")
	v.shows("top-waited", evil, "1 waiting")
	v.shows("names", "host-2 (pid 700)", "semaphore of 3", "nightly", "59m ")
	v.until(`$('names').tBodies[0].rows[0].cells[4].textContent.length > 10`) // its token

	v.enter("search", "NIGHTLY")
	v.inOrder("downloads")
	v.shows("range", "1 to 1 of 1")
	v.enter("search", "no such thing")
	v.inOrder()
	v.shows("none", "No name has that.")
	v.enter("search", "")
	v.inOrder(evil, "deploy/prod", "downloads")
	byName := `$('names').tHead.rows[0].cells[0]`
	eval[any](v, byName+`.firstChild.click()`)
	v.inOrder(evil, "deploy/prod", "downloads")
	eval[any](v, byName+`.firstChild.click()`)
	v.inOrder("downloads", "deploy/prod", evil)
	if sorted := eval[string](v, byName+`.getAttribute('aria-sort')`); sorted != "ascending" {
		t.Errorf("a screen reader is told it is sorted %s", sorted)
	}

	eval[any](v, `[...document.links].find((a) => a.title.startsWith('<img')).click()`)
	v.shows("name", evil)
	v.shows("about", "mutex, 1 holding, 1 waiting")
	v.shows("holders", evil, "claim-0002")
	v.shows("queue", "next", "claim-0003")
	v.until(`document.querySelectorAll('#line .bar').length === 2`)
	if _, err := store.Leave(await.Context(t), driver.Ref{Name: evil, ID: "claim-0002"}); err != nil {
		t.Fatal(err)
	}
	v.shows("holders", "claim-0003")
	v.shows("idle", "Nobody waits.")
	v.shows("events", "ended, after", "holds", evil)
	v.until(`document.querySelectorAll('#line .track').length === 2`)
	if n := eval[int](v, `document.images.length`); n != 0 {
		t.Errorf("%d images were made of names", n)
	}
	v.call("Page.reload", nil)
	v.shows("name", evil)
	v.click("back")
	v.inOrder("downloads", "deploy/prod", evil)
}

// The page shows how it was, and since when, while the store or the server is away.
func TestTrouble(t *testing.T) {
	t.Parallel()
	store := memory(t)
	enter(t, store, claim("deploy/prod", "claim-0001", "ci"))
	url, _ := serve(t, store, &pawlhttp.Options{Poll: time.Millisecond})
	v := open(t, url, 1280, false)
	v.inOrder("deploy/prod")
	store.Close()
	v.shows("trouble", "The store cannot be read", "ago")
	v.inOrder("deploy/prod")
	v.call("Network.emulateNetworkConditions", object{"offline": true, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
	v.shows("trouble", "pawl serve does not reply. This is of ")
}

func TestManyNames(t *testing.T) {
	t.Parallel()
	store := memory(t)
	const many = 10_000
	for i := range many {
		enter(t, store, claim(fmt.Sprintf("jobs/%05d", i), fmt.Sprintf("claim-%05d", i), fmt.Sprintf("worker %d", i%7)))
	}
	enter(t, store, claim("jobs/00042", "waiting-1", "next"))
	url, _ := serve(t, store, nil)
	v := open(t, url, 1280, false)
	v.shows("counts", "10,000 names, 10,000 held, 1 waiting")
	v.shows("range", "1 to 100 of 10,000")
	eval[any](v, `($('order').value = 'name', $('order').dispatchEvent(new Event('change')))`)
	await.That(t, "the first page", func() bool { n := v.names(); return len(n) == 100 && n[0] == "jobs/00000" && n[99] == "jobs/00099" })
	v.click("next")
	await.That(t, "the second page", func() bool { n := v.names(); return len(n) == 100 && n[0] == "jobs/00100" })
	v.shows("range", "101 to 200 of 10,000")
	v.enter("search", "jobs/09999")
	v.inOrder("jobs/09999")
	v.enter("search", "")
	eval[any](v, `($('order').value = 'waiters', $('order').dispatchEvent(new Event('change')))`)
	await.That(t, "who waits first", func() bool { n := v.names(); return len(n) == 100 && n[0] == "jobs/00042" })
	v.click("reverse")
	await.That(t, "the last first", func() bool { n := v.names(); return len(n) == 100 && n[0] == "jobs/09999" })

	// What it takes to read and show all anew; for people, not for the test.
	took := eval[float64](v, `(async () => {
		const begun = performance.now();
		for (let i = 0; i < 10; i++) await (await import('./overview.js')).refresh();
		return (performance.now() - begun) / 10;
	})()`)
	t.Logf("10,000 names are read, sorted, sent and shown in %.1f ms", took)
}

// The token is asked for, and goes nowhere but into a header and this tab's storage.
func TestTokens(t *testing.T) {
	t.Parallel()
	const adminToken, readToken = "admin-token-of-more-than-20-bytes", "read-token-of-more-than-20-bytes"
	access, err := pawlhttp.ReadAccess(strings.NewReader("ops token:" + adminToken + " admin deploy/*\nlooker token:" + readToken + " read deploy/*\n"))
	if err != nil {
		t.Fatal(err)
	}
	store := memory(t)
	enter(t, store, claim("deploy/prod", "claim-0001", "ci"), claim("secret", "claim-0002", "x"))
	url, asked := serve(t, store, &pawlhttp.Options{Access: access, AllowActions: true})
	v := open(t, url+"#/deploy%2Fprod", 1280, false)
	login := func(token string) {
		t.Helper()
		v.until(`!!$('token') && $('token').checkVisibility()`)
		v.enter("token", token)
		eval[any](v, `$('login-form').requestSubmit()`)
	}
	login("wrong-token-of-more-than-20-bytes")
	v.shows("login-error", "the token is not known")
	login(readToken)
	v.shows("store", "you are looker")
	v.shows("holders", "ci")
	v.shows("why", "needs the right admin")
	v.until(`!$('force').checkVisibility()`)
	v.call("Page.reload", nil)
	v.shows("holders", "ci")
	v.click("back")
	v.inOrder("deploy/prod")
	v.click("forget")
	login(adminToken)
	v.shows("store", "you are ops")
	eval[any](v, `location.hash = '#/deploy%2Fprod'`)
	v.shows("holders", "ci")
	v.until(`$('force').checkVisibility() && !$('force').disabled`)
	kept := eval[string](v, `document.cookie + JSON.stringify(localStorage) + location.href + document.documentElement.outerHTML`)
	for _, token := range []string{adminToken, readToken} {
		if strings.Contains(kept, token) || strings.Contains(asked(), token) {
			t.Errorf("a token is in an address, a cookie, the page or in storage that stays")
		}
	}
	other := open(t, url, 1280, false)
	other.until(`$('token').checkVisibility()`)
}
