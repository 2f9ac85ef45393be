package redisstore

import (
	"embed"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/queue"
)

//go:embed lua/*.lua
var lua embed.FS

// One script for each operation: what is common and not trivial costs only
// those calls that come so far, for each script begins with its short way.
var (
	enterScript   = compose("enter")
	renewScript   = compose("renew")
	leaveScript   = compose("leave")
	resizeScript  = compose("resize")
	inspectScript = compose("inspect")
	loadScript    = compose("load")
	swapScript    = compose("swap")
)

func compose(name string) *Script {
	body := part(name)
	if head, tail, ok := strings.Cut(body, "-- include machine\n"); ok {
		spare := strconv.FormatInt(queue.Spare, 10)
		body = head + strings.ReplaceAll(part("machine"), "SPARE", spare) + tail
	}
	return NewScript(part("clock") + body)
}

func part(name string) string {
	b, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // not embedded: a mistake in this package
	}
	return string(b)
}
