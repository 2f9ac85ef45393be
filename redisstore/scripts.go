package redisstore

import (
	"embed"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

//go:embed lua/*.lua
var lua embed.FS

// One script for each operation: what is common and not trivial costs only
// those calls that come so far, for each script begins with its short way.
var (
	enterScript    = compose("enter")
	enterAllScript = compose("enterall")
	renewScript    = compose("renew")
	leaveScript    = compose("leave")
	groupScript    = compose("group")
	resizeScript   = compose("resize")
	limitScript    = compose("limit")
	askScript      = compose("ask")
	breakScript    = compose("break")
	adoptScript    = compose("adopt")
	inspectScript  = compose("inspect")
	loadScript     = compose("load")
	swapScript     = compose("swap")
	watchScript    = NewScript(part("watch"))
	probeScript    = compose("probe")
	listenedScript = compose("listened")

	voteScript     = compose("vote")
	withdrawScript = compose("withdraw")
	memoryScript   = compose("memory")
)

// The expiry of keys that stay, in microseconds: beyond every time that can be.
const never = 8_000_000_000_000_000

// Claims of one name: to read them all takes the server some 5 µs for each.
const crowd = 20_000

func compose(name string) *Script {
	body := part(name)
	for _, shared := range []string{"stamp", "remembered", "head", "share", "machine", "admitting", "frugal"} {
		body = strings.Replace(body, "-- include "+shared+"\n", part(shared), 1)
	}
	body = strings.NewReplacer(
		"SPARE", strconv.FormatInt(queue.Spare, 10),
		"NEVER", strconv.FormatInt(never, 10),
		"CROWD", strconv.Itoa(crowd),
		"FRONT", strconv.Itoa(driver.Front),
	).Replace(body)
	if clock := "-- include clock\n"; strings.Contains(body, clock) {
		body = strings.Replace(body, clock, part("clock"), 1)
	} else {
		body = part("clock") + body
	}
	return NewScript(body)
}

func part(name string) string {
	b, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // not embedded: a mistake in this package
	}
	return string(b)
}
