package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
)

// explain is what the user is told of an error: of the store's, which store it is,
// without its password.
func (a *app) explain(f *failure) string {
	text := lines(f.err.Error())
	if f.status != exitUnreachable {
		return text
	}
	raw, err := a.store()
	if err != nil {
		return text // that is the error
	}
	public, err := storeurl.Public(raw)
	if err != nil {
		return text
	}
	text = plainTLS(raw, text)
	if !strings.Contains(text, public) {
		text = fmt.Sprintf("store %s: %s", public, text)
	}
	return text
}

// lines makes one line of several, each of which is told once.
func lines(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return strings.ReplaceAll(strings.Join(all, "; "), ":; ", ": ")
}

// plainTLS explains what comes of TLS on one side only, which its implementations
// tell in terms of their own, or not at all.
func plainTLS(raw, text string) string {
	const handshake = "tls: first record does not look like a TLS handshake"
	scheme, rest, _ := strings.Cut(raw, ":")
	engine, kind, _ := strings.Cut(scheme, "+") // as in redis+cluster
	if kind != "" {
		kind = "+" + kind
	}
	plain := map[string]string{"rediss": "redis", "valkeys": "valkey", "etcds": "etcd"}[engine]
	wants := plain != "" || strings.Contains(rest, "tls=true") || strings.Contains(rest, "sslmode=require") || strings.Contains(rest, "sslmode=verify")
	secure := map[string]string{"redis": "rediss", "valkey": "valkeys", "etcd": "etcds"}[engine]
	instead := ""
	if other := cmp.Or(plain, secure); other != "" {
		instead = ": is it " + other + kind + "://?"
	}
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	switch {
	case strings.Contains(text, handshake):
		return strings.ReplaceAll(text, handshake, "the server does not speak TLS there") + instead
	case wants && has("deadline exceeded", "no reply", "gave up"):
		return text + "; maybe the server does not speak TLS there" + instead
	case secure != "" && has("connection reset by peer", "error reading server preface", "malformed HTTP"):
		return text + "; maybe the server speaks TLS alone there" + instead
	}
	return text
}
