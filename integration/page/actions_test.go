package page

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pawlhttp"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// lines is an audit log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.text.String()))
}

// openRedis starts a server, and listens to it: who waits is granted only what somebody
// hears of.
func openRedis(t *testing.T) *redisstore.Store {
	t.Helper()
	store, err := rueidis.Open(servers.RunRedis(t, servers.RedisOptions{}).URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(await.Context(t))
	heard, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		_ = store.Listen(ctx, func(driver.Notice) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	await.Value(t, "the store listens", heard)
	t.Cleanup(func() {
		cancel()
		<-done
		store.Close()
	})
	return store
}

// An action is done after a confirmation that names the holder, on the claims that it
// has named, and is in the audit log.
func TestActions(t *testing.T) {
	t.Parallel()
	store := openRedis(t)
	first := claim("deploy/prod", "claim-0001", "ci")
	enter(t, store, first, claim("deploy/prod", "claim-0002", "rollback"), claim("deploy/prod", "claim-0003", "retry"), claim("other", "claim-0004", "x"))
	enter(t, store, semaphore(claim("downloads", "claim-0005", "a"), 1), semaphore(claim("downloads", "claim-0006", "b"), 1))
	audit := new(lines)
	url, _ := serve(t, store, &pawlhttp.Options{AllowActions: true, Audit: slog.New(slog.NewTextHandler(audit, nil))})
	v := open(t, url+"#/deploy%2Fprod", 1280, false)
	ctx := await.Context(t)

	v.shows("holders", "claim-0001")
	v.click("force")
	v.shows("confirm", "Release deploy/prod by force?", "ci on host-1 (pid 700), token ")
	v.click("confirm-no")
	v.until(`!$('confirm').open`)
	if got := holders(ctx, t, store, "deploy/prod"); !slices.Equal(got, []string{"claim-0001"}) || len(audit.all()) != 0 {
		t.Errorf("after Cancel %q holds it, and the audit log has %q", got, audit.all())
	}

	// The one that was named has gone before it is confirmed.
	v.click("force")
	v.shows("confirm", "ci on host-1")
	if _, err := store.Leave(ctx, driver.Ref{Name: first.Name, ID: first.ID}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the next one holds it", func() bool { return slices.Equal(holders(ctx, t, store, "deploy/prod"), []string{"claim-0002"}) })
	v.click("confirm-yes")
	v.shows("done", "Not done:", "held by others")
	if got := holders(ctx, t, store, "deploy/prod"); !slices.Equal(got, []string{"claim-0002"}) {
		t.Errorf("another one than was named was released: %q holds it", got)
	}

	v.shows("holders", "claim-0002")
	v.click("force")
	v.shows("confirm", "rollback on host-2 (pid 700), token ")
	v.click("confirm-yes")
	v.shows("done", "Taken from rollback on host-2 (pid 700), token ")
	v.shows("events", "forced", "by somebody without a token")
	v.shows("holders", "claim-0003")
	if got := holders(ctx, t, store, "other"); len(got) != 1 {
		t.Errorf("another name was released")
	}
	v.click("yield")
	v.shows("confirm", "retry on host-3")
	v.click("confirm-yes")
	v.shows("done", "Asked.")
	if lines := audit.all(); len(lines) != 3 || !strings.Contains(lines[0], "outcome=refused") ||
		!strings.Contains(lines[1], "action=force-release name=deploy/prod") || !strings.Contains(lines[1], `outcome=done claims="claim-0002 token=`) ||
		!strings.Contains(lines[2], "action=request-yield name=deploy/prod") {
		t.Errorf("the audit log has %q", lines)
	}

	eval[any](v, `location.hash = '#/downloads'`)
	v.shows("about", "semaphore of 1, 1 holding, 1 waiting")
	v.click("limit")
	v.until(`document.activeElement === $('confirm-value')`)
	v.enter("confirm-value", "2")
	v.click("confirm-yes")
	v.shows("done", "The limit is 2; its users give 1.")
	v.shows("about", "semaphore of 2 (its users give 1), 2 holding")
	v.click("back")
	v.shows("notable", "deploy/prod", "forced")
}

// Without --allow-actions there are no buttons, and what a script of the page sends is
// refused; and so is what a page of another site sends to a server that allows them.
func TestNoActions(t *testing.T) {
	t.Parallel()
	store := memory(t)
	enter(t, store, claim("deploy/prod", "claim-0001", "ci"))
	url, _ := serve(t, store, nil)
	v := open(t, url+"#/deploy%2Fprod", 1280, false)
	v.shows("holders", "claim-0001")
	v.shows("why", "--allow-actions")
	for _, id := range []string{"force", "yield", "limit"} {
		v.until(fmt.Sprintf("!$(%q).checkVisibility()", id))
	}
	post := func(url, header string) string {
		return fmt.Sprintf(`fetch(%q, {method: 'POST', headers: {%s}, body: '{"name":"deploy/prod"}'}).then((r) => r.status, () => 0)`, url+"v1/force-release", header)
	}
	if status := eval[int](v, post(url, `'Pawl-Action': 'confirmed'`)); status != 403 {
		t.Errorf("without --allow-actions: %d", status)
	}

	allowed, asked := serve(t, store, &pawlhttp.Options{AllowActions: true})
	same := open(t, allowed, 1280, false)
	if status := eval[int](same, post(allowed, "")); status != 403 {
		t.Errorf("without the header: %d", status)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>x</title><form id="form" method="post" enctype="text/plain"><input name='{"name":"deploy/prod","holders":null,"x":"' value='"}'></form>`)
	}))
	defer site.Close()
	there := openElsewhere(t, site.URL)
	for _, header := range []string{`'Pawl-Action': 'confirmed'`, ``} {
		if status := eval[int](there, post(allowed, header)); status != 0 {
			t.Errorf("a page of another site reads a status: %d", status)
		}
	}
	eval[any](there, fmt.Sprintf(`($('form').action = %q, $('form').submit())`, allowed+"v1/force-release"))
	there.until(`document.body.innerText.includes('another site')`)
	if n := strings.Count(asked(), "/v1/force-release"); n < 4 {
		t.Errorf("%d requests came to the server, want each and a preflight:\n%s", n, asked())
	}
	if got := holders(await.Context(t), t, store, "deploy/prod"); len(got) != 1 {
		t.Error("it was released")
	}
}
