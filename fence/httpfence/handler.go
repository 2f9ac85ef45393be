package httpfence

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/pawl-go/pawl/fence"
)

// Guard keeps the highest token of each name, and runs sections of code under it: a
// [fence.Gate], if one process serves the resource; a fence of package filefence, if several
// of one machine do.
type Guard interface {
	// Do runs f, while no section with a smaller token runs, unless a greater token of
	// one of the names was seen: then it is a *fence.StaleError.
	Do(ctx context.Context, tokens []fence.Token, f func(ctx context.Context) error) error
}

// Options of a [Handler].
type Options struct {
	// Name returns the name of the lock that guards what the request is for, as the server
	// knows it: a token of another name does not do. nil, or an empty name: the names
	// that the request tells are believed, so it must tell some.
	Name func(r *http.Request) string

	// Optional lets requests without a token pass. Without it these are refused with 428
	// Precondition Required, but for GET, HEAD, OPTIONS and TRACE.
	Optional bool

	// ErrorLog is told why a guard has failed. nil: the log package's standard logger.
	ErrorLog *log.Logger
}

// Handler returns a handler that lets next serve a request, as a section of the guard,
// unless a greater token was seen: then it replies 409, see [Refuse]. A token that is
// missing is 428, one that cannot be understood 400, a guard that fails 503.
//
// A request with a greater token waits until next has returned to the one before. So next
// must not leave anything behind that writes later. With a [fence.Gate] the context of the
// one before ends with cause *[fence.StaleError], and its body can be read no further;
// with another guard a client that is paused amid its request holds up the others until the
// server's ReadTimeout.
//
// If next writes into a database that several processes share, let it check the tokens in the
// transaction that writes: guard may be nil then, and [Tokens] are what the request
// bears. See package sqlfence. o may be nil.
func Handler(next http.Handler, guard Guard, o *Options) http.Handler {
	h := &handler{next: next, guard: guard}
	if o != nil {
		h.Options = *o
	}
	return h
}

type handler struct {
	next  http.Handler
	guard Guard
	Options
}

type tokensKey struct{}

// Tokens returns the tokens of the request that ctx belongs to, as a [Handler] has read
// them.
func Tokens(ctx context.Context) []fence.Token {
	tokens, _ := ctx.Value(tokensKey{}).([]fence.Token)
	return tokens
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tokens, err := Header(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := ""
	if h.Name != nil {
		name = h.Name(r)
	}
	switch tokens, err = chosen(tokens, name); {
	case err == nil:
		h.serve(w, r, tokens)
	case len(tokens) == 0 && (h.Optional || safe(r.Method)):
		h.next.ServeHTTP(w, r)
	default:
		http.Error(w, err.Error(), http.StatusPreconditionRequired)
	}
}

var errMissing = errors.New("a fencing token is required: header " + HeaderToken)

// chosen returns the token of the name that guards the resource, or all if the server
// does not know one. After an error it returns what was sent.
func chosen(tokens []fence.Token, name string) ([]fence.Token, error) {
	switch {
	case len(tokens) == 0 && name == "":
		return nil, errMissing
	case len(tokens) == 0:
		return nil, fmt.Errorf("%w of %q", errMissing, name)
	case name == "" && tokens[0].Name == "":
		return tokens, fmt.Errorf("the name of the lock is required: header %s", HeaderName)
	case name == "":
		return tokens, nil
	case tokens[0].Name == "":
		return []fence.Token{{Name: name, Value: tokens[0].Value}}, nil
	}
	for _, t := range tokens {
		if t.Name == name {
			return []fence.Token{t}, nil
		}
	}
	return tokens, fmt.Errorf("%w of %q", errMissing, name)
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, tokens []fence.Token) {
	serve := func(ctx context.Context) {
		h.next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, tokensKey{}, tokens)))
	}
	if h.guard == nil {
		serve(r.Context())
		return
	}
	served := false
	err := h.guard.Do(r.Context(), tokens, func(ctx context.Context) error {
		served = true
		defer interrupt(ctx, w)()
		serve(ctx)
		return nil
	})
	if served || err == nil || Refuse(w, err) {
		return
	}
	if r.Context().Err() == nil {
		h.logf("http fence: %s %s: %v", r.Method, r.URL.Path, err)
	}
	http.Error(w, "the fencing token cannot be checked now", http.StatusServiceUnavailable)
}

// interrupt ends the reading of a request's body when a greater token comes: its client may
// be paused. The function that it returns calls that off.
func interrupt(ctx context.Context, w http.ResponseWriter) (cancel func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		if errors.Is(context.Cause(ctx), fence.ErrStale) {
			http.NewResponseController(w).SetReadDeadline(time.Now()) // unless w cannot
		}
	})
	return func() {
		if !stop() {
			<-done // w is not to be used after the handler has returned
		}
	}
}

func (h *handler) logf(format string, args ...any) {
	if h.ErrorLog != nil {
		h.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}
