package plain

import (
	"embed"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/redisstore"
)

//go:embed lua/*.lua
var lua embed.FS

var (
	takeScript  = script("take")
	renewScript = script("renew")
	leaveScript = script("leave")
)

func script(name string) *redisstore.Script {
	b, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // not embedded: a mistake in this package
	}
	return redisstore.NewScript(string(b))
}

// parseTaken reads what take.lua returns.
func parseTaken(reply string) (t taken, err error) {
	kind, rest, _ := strings.Cut(reply, " ")
	switch kind {
	case "g":
		t.left = true
		return t, nil
	case "h":
		t.token, err = parseToken(rest)
		return t, err
	case "o":
		var words [2]int64
		for i := range words {
			var word string
			word, rest, _ = strings.Cut(rest, " ")
			if words[i], err = strconv.ParseInt(word, 10, 64); err != nil {
				return t, errReply(reply)
			}
		}
		t.other = &seen{there: true, text: rest, now: words[0], left: words[1]}
		return t, nil
	}
	return t, errReply(reply)
}

// parseRenewed reads a line of what renew.lua returns: a token, 0 for a claim that is
// not there, or the error of that key.
func parseRenewed(line string) (token int64, err error) {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "h":
		return parseToken(rest)
	case "g":
		return 0, nil
	case "e":
		return 0, &redisstore.ServerError{Text: rest}
	}
	return 0, errReply(line)
}

func parseToken(text string) (int64, error) {
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil || token <= 0 {
		return 0, errReply(text)
	}
	return token, nil
}
