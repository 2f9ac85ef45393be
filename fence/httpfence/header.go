// Package httpfence is a fence behind HTTP: a request bears the token of its holder's
// lease, and the server refuses one with an older token than it has seen.
//
//	Fencing-Token: 1764000000000017
//	Fencing-Name: orders%2F42
//
// A request of a lease of several locks has a list in each of the two headers, separated
// by commas, in the same order. Names are percent-encoded. A server that knows the name
// which guards its resource needs no Fencing-Name.
//
// A refusal is 409 Conflict with the token that was seen:
//
//	Fencing-Name: orders%2F42
//	Fencing-Seen: 1764000000000023
//
// A client's side is [Transport], a server's is [Handler].
package httpfence

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/fence"
)

// The headers.
const (
	HeaderToken = "Fencing-Token"
	HeaderName  = "Fencing-Name"
	HeaderSeen  = "Fencing-Seen"
)

// SetHeader puts tokens into the header of a request, in place of those that it has.
func SetHeader(h http.Header, tokens []fence.Token) error {
	tokens, err := fence.Ordered(tokens)
	if err != nil {
		return fmt.Errorf("http fence: %w", err)
	}
	values, names := make([]string, len(tokens)), make([]string, len(tokens))
	for i, t := range tokens {
		values[i], names[i] = strconv.FormatInt(t.Value, 10), url.PathEscape(t.Name)
	}
	h.Set(HeaderToken, strings.Join(values, ", "))
	h.Set(HeaderName, strings.Join(names, ", "))
	return nil
}

// Header returns the tokens in the header of a request, in the order of names, and none if
// it has none. A single token may come without a name: then Name is empty. An
// error, which is [fence.ErrInvalid], says what of it cannot be understood.
func Header(h http.Header) ([]fence.Token, error) {
	values, names := list(h, HeaderToken), list(h, HeaderName)
	switch {
	case len(values) == 0 && len(names) == 0:
		return nil, nil
	case len(names) == 0 && len(values) == 1:
		names = []string{""}
	case len(values) != len(names):
		return nil, fmt.Errorf("%w headers: %d tokens in %s, %d names in %s", fence.ErrInvalid, len(values), HeaderToken, len(names), HeaderName)
	}
	tokens := make([]fence.Token, len(values))
	for i, v := range values {
		value, err := strconv.ParseInt(v, 10, 64)
		if err != nil || value < 1 {
			return nil, fmt.Errorf("%w %s %.40q: allowed are 1 and more", fence.ErrInvalid, HeaderToken, v)
		}
		name, err := url.PathUnescape(names[i])
		if err != nil {
			return nil, fmt.Errorf("%w %s %.40q: it must be percent-encoded", fence.ErrInvalid, HeaderName, names[i])
		}
		tokens[i] = fence.Token{Name: name, Value: value}
	}
	if len(tokens) == 1 && tokens[0].Name == "" {
		return tokens, nil
	}
	return fence.Ordered(tokens)
}

// list returns the elements of a header, which proxies may have joined.
func list(h http.Header, key string) (all []string) {
	for _, line := range h.Values(key) {
		for v := range strings.SplitSeq(line, ",") {
			all = append(all, strings.TrimSpace(v))
		}
	}
	return all
}

// refusal is the body of a 409.
type refusal struct {
	Error string `json:"error"`
	Name  string `json:"name"`
	Token int64  `json:"token"`
	Seen  int64  `json:"seen"`
}

// Refuse replies 409 Conflict if err is a *[fence.StaleError], and reports whether it
// is: for handlers that check tokens themselves, in the transaction that writes.
func Refuse(w http.ResponseWriter, err error) bool {
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok {
		return false
	}
	body, err := json.Marshal(refusal{fence.ErrStale.Error(), stale.Name, stale.Token, stale.Seen})
	if err != nil { // which no string and number bring about
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set(HeaderName, url.PathEscape(stale.Name))
	h.Set(HeaderToken, strconv.FormatInt(stale.Token, 10))
	h.Set(HeaderSeen, strconv.FormatInt(stale.Seen, 10))
	w.WriteHeader(http.StatusConflict)
	w.Write(append(body, '\n')) // who does not read it has gone
	return true
}

// Stale returns the *[fence.StaleError] by which the server has refused the request, or nil
// if it has not.
func Stale(res *http.Response) error {
	seen, err := strconv.ParseInt(res.Header.Get(HeaderSeen), 10, 64)
	if res.StatusCode != http.StatusConflict || err != nil {
		return nil
	}
	name, err := url.PathUnescape(res.Header.Get(HeaderName))
	if err != nil {
		name = res.Header.Get(HeaderName)
	}
	token, _ := strconv.ParseInt(res.Header.Get(HeaderToken), 10, 64) // 0: it does not say
	return &fence.StaleError{Name: name, Token: token, Seen: seen}
}
