// Package page tests the page of pawl serve in a browser.
package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// browser is the one of all tests. It is started when the first needs it.
var browser struct {
	once sync.Once
	*servers.Chromium
	dir string
	err error
}

func theBrowser(t testing.TB) *servers.Chromium {
	t.Helper()
	browser.once.Do(func() {
		if browser.dir, browser.err = os.MkdirTemp("", "pawl-chromium-"); browser.err == nil {
			browser.Chromium, browser.err = servers.StartChromium(browser.dir)
		}
	})
	if browser.err != nil {
		t.Fatal(browser.err)
	}
	return browser.Chromium
}

func TestMain(m *testing.M) {
	status := m.Run()
	if browser.Chromium != nil {
		browser.Close()
	}
	if browser.dir != "" {
		os.RemoveAll(browser.dir)
	}
	os.Exit(status)
}

// view is the page, as one person sees it.
type view struct {
	testing.TB
	*servers.Tab
}

// open opens an address. A test that leaves trouble in the page fails.
func open(t testing.TB, url string, width int, dark bool) *view {
	t.Helper()
	v := openElsewhere(t, url)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	v.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500})
	v.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}})
	t.Cleanup(func() {
		for _, what := range v.Trouble() {
			t.Errorf("in the page: %s", what)
		}
	})
	return v
}

// openElsewhere opens a page that is not ours.
func openElsewhere(t testing.TB, url string) *view {
	t.Helper()
	tab, err := theBrowser(t).Open()
	if err != nil {
		t.Fatal(err)
	}
	v := &view{t, tab}
	v.call("Page.navigate", object{"url": url})
	v.until(`document.readyState === 'complete' && location.href !== 'about:blank'`)
	t.Cleanup(func() {
		if t.Failed() {
			var text string
			_ = v.Eval("location.href + '\\n' + document.body.innerText", &text)
			t.Logf("the page:\n%s", text)
		}
		_ = v.Call("Page.close", nil, nil)
	})
	return v
}

type object = map[string]any

func (v *view) call(method string, params any) {
	v.Helper()
	if err := v.Call(method, params, nil); err != nil {
		v.Fatal(err)
	}
}

// eval returns what an expression of JavaScript is. $(id) is the element.
func eval[T any](v *view, expression string) (result T) {
	v.Helper()
	if err := v.Eval(withID(expression), &result); err != nil {
		v.Fatalf("%s: %v", expression, err)
	}
	return result
}

func withID(expression string) string {
	return "(($) => (" + expression + "))((id) => document.getElementById(id))"
}

// until waits until an expression is true.
func (v *view) until(expression string) {
	v.Helper()
	await.That(v, expression, func() (ok bool) {
		// While a page is loaded there is none to ask.
		return v.Eval(withID(expression), &ok) == nil && ok
	})
}

// shows waits until an element has a text in it.
func (v *view) shows(id string, texts ...string) {
	v.Helper()
	for _, text := range texts {
		v.until(fmt.Sprintf("!!$(%q) && $(%q).checkVisibility() && $(%q).innerText.includes(%s)", id, id, id, quoted(text)))
	}
}

func (v *view) click(id string) {
	v.Helper()
	v.until(fmt.Sprintf("!!$(%q) && $(%[1]q).checkVisibility() && !$(%[1]q).disabled", id))
	eval[any](v, fmt.Sprintf("$(%q).click()", id))
}

// names are those of the table, in order.
func (v *view) names() []string {
	v.Helper()
	return eval[[]string](v, "[...$('names').tBodies[0].rows].map((r) => r.cells[0].textContent)")
}

// inOrder waits until the table has those names.
func (v *view) inOrder(names ...string) {
	v.Helper()
	await.That(v, fmt.Sprintf("the names %q", names), func() bool { return fmt.Sprint(v.names()) == fmt.Sprint(names) })
}

// enter types a text into a field.
func (v *view) enter(id, text string) {
	v.Helper()
	eval[any](v, fmt.Sprintf("($(%q).value = %s, $(%[1]q).dispatchEvent(new Event('input', {bubbles: true})))", id, quoted(text)))
}

// press presses a key, as a keyboard does.
func (v *view) press(key string) {
	v.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "/": 191}
	down := object{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	switch key {
	case "Enter":
		down["text"] = "\r"
	case "/":
		down["text"], down["code"] = "/", "Slash"
	}
	v.call("Input.dispatchKeyEvent", down)
	v.call("Input.dispatchKeyEvent", object{"type": "keyUp", "key": key, "code": down["code"], "windowsVirtualKeyCode": codes[key]})
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// serve serves a store, and keeps the addresses that were asked for.
func serve(t testing.TB, store driver.Store, opts *pawlhttp.Options) (url string, asked func() string) {
	t.Helper()
	h := pawlhttp.New(store, opts)
	var mu sync.Mutex
	var all strings.Builder
	s := httptest.NewServer(http.StripPrefix("/pawl", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		fmt.Fprintln(&all, r.URL, r.Referer())
		mu.Unlock()
		h.ServeHTTP(w, r)
	})))
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	return s.URL + "/pawl/", func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}

func memory(t testing.TB) *memstore.Store {
	s := memstore.New()
	t.Cleanup(func() { s.Close() })
	return s
}

// claim is one that holds, or waits, until the test ends.
func claim(name, id, label string) driver.Claim {
	return driver.Claim{
		Name: name, ID: id, Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Hour,
		Owner: driver.Owner{Label: label, Host: "host-" + id[len(id)-1:], PID: 700},
	}
}

func semaphore(c driver.Claim, limit int64) driver.Claim {
	c.Kind, c.Limit = driver.KindSemaphore, limit
	return c
}

func enter(t testing.TB, store driver.Store, claims ...driver.Claim) {
	t.Helper()
	for _, c := range claims {
		if _, err := store.Enter(await.Context(t), c); err != nil {
			t.Fatal(err)
		}
	}
}

// holders are the ids of the claims that hold a name.
func holders(ctx context.Context, t testing.TB, store driver.Store, name string) (ids []string) {
	t.Helper()
	q, err := store.Inspect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range q.Claims {
		if c.State == driver.Holding {
			ids = append(ids, c.ID)
		}
	}
	return ids
}
