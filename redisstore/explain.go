package redisstore

import (
	"slices"
	"strings"
)

// Explain says what an error of a [Conn] means, and marks with driver.Permanent what
// repeating cannot mend. It is for other stores on a Conn that is not one of a cluster.
func Explain(err error) error { return classify(err, false) }

// Forbids reports whether the server refuses to run one of these commands, in small
// letters, for this user, or does not know it. That the user must not touch a key is
// another matter.
func (e *ServerError) Forbids(commands ...string) bool {
	text := strings.ToLower(e.Text)
	text = strings.TrimPrefix(text, "execabort transaction discarded because of: ")
	named := func(before, quotes, after string) bool {
		_, rest, ok := strings.Cut(text, before)
		return ok && slices.ContainsFunc(commands, func(command string) bool {
			return len(rest) > 0 && strings.Contains(quotes, rest[:1]) && strings.HasPrefix(rest[1:], command+rest[:1]+after)
		})
	}
	switch code, _, _ := strings.Cut(text, " "); code {
	case "noperm":
		return named("run the ", "'", " command")
	case "err":
		return named("unknown command ", "'`", "")
	}
	return false
}
