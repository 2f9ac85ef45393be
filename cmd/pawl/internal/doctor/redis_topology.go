//go:build !folder

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

// watched looks at Sentinels and the primary that they name.
func (x *redisExam) watched(ctx context.Context) bool {
	quorum, known := x.sentinels(ctx)
	nodes := x.client.Nodes()
	for addr := range nodes {
		x.ok("topology", "the primary of %s is %s", x.opt.Sentinel.MasterSet, addr)
	}
	if !x.server(ctx, x.client) {
		return false
	}
	const more = "run three of them, on machines of their own, and name all in the URL"
	switch {
	case known == 1:
		x.warn("sentinels", more, "there is one: when it is gone, too, no other server becomes the primary")
	case quorum > 0 && quorum <= known/2:
		x.warn("sentinels", fmt.Sprintf("SENTINEL SET %s quorum %d", x.opt.Sentinel.MasterSet, known/2+1),
			"%d of %d are enough to take the primary for down (quorum)", quorum, known)
	}
	return true
}

// sentinels asks those that the URL names. It returns their quorum, and how many they know of.
func (x *redisExam) sentinels(ctx context.Context) (quorum, known int64) {
	reply := 0
	for _, addr := range x.opt.InitAddress {
		opt := x.opt
		opt.InitAddress, opt.ForceSingleClient = []string{addr}, true
		opt.Username, opt.Password, opt.SelectDB, opt.TLSConfig = opt.Sentinel.Username, opt.Sentinel.Password, 0, opt.Sentinel.TLSConfig
		opt.Sentinel = rueidis.SentinelOption{}
		master, err := sentinelMaster(ctx, opt, x.opt.Sentinel.MasterSet)
		if err != nil {
			x.warn("sentinels", "is it running, and is its address right?", "%s: %v", addr, err)
			continue
		}
		reply++
		quorum, known = number(master["quorum"]), number(master["num-other-sentinels"])+1
	}
	x.ok("sentinels", "%d of %d in the URL reply; they know of %d, of %s", reply, len(x.opt.InitAddress), known, x.opt.Sentinel.MasterSet)
	return quorum, known
}

func sentinelMaster(ctx context.Context, opt rueidis.ClientOption, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	c, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, c.B().Arbitrary("SENTINEL", "MASTER", name).Build()).AsStrMap()
}

// cluster looks at each primary, and says once what is the same of several.
func (x *redisExam) cluster(ctx context.Context) bool {
	info, err := x.client.Do(ctx, x.client.B().ClusterInfo().Build()).ToString()
	if err != nil {
		x.note("topology", "this user may not see it (CLUSTER INFO): %v", err)
	}
	state := fieldsOf(strings.TrimPrefix(info, "txt:"), ":") // a verbatim string says what it is
	var primaries []*redisExam
	var addrs []string
	replied := false
	for addr, node := range x.client.Nodes() {
		if isReplica(ctx, node) {
			continue
		}
		of := &redisExam{exam: &exam{Report: &Report{Worst: OK}, by: x.by, raw: x.raw, url: x.url, ttl: x.ttl}, opt: x.opt, client: node, replicas: x.replicas}
		if of.server(ctx, node) {
			replied = true
			x.Engine, x.Version = cmp.Or(of.Engine, x.Engine), cmp.Or(of.Version, x.Version)
		}
		primaries, addrs = append(primaries, of), append(addrs, addr)
	}
	if err == nil {
		x.clusterState(state, len(primaries))
	}
	x.merge(primaries, addrs)
	return replied
}

// isReplica reports whether the server says that it is one.
func isReplica(ctx context.Context, c rueidis.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	hello, err := c.Do(ctx, c.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return false
	}
	role := hello["role"]
	text, err := role.ToString()
	return err == nil && text != "master"
}

func (x *redisExam) clusterState(state map[string]string, primaries int) {
	switch assigned := number(state["cluster_slots_assigned"]); {
	case assigned < 16384:
		x.fail("topology", "redis-cli --cluster fix", "a cluster of %s, in which %d slots have no server: names of those slots cannot be locked", servers(primaries), 16384-assigned)
	case state["cluster_state"] != "ok":
		x.fail("topology", "redis-cli --cluster check", "a cluster of %s, which is down", servers(primaries))
	default:
		x.ok("topology", "a cluster of %s, %s servers in all", servers(primaries), state["cluster_known_nodes"])
	}
}

func servers(primaries int) string {
	if primaries == 1 {
		return "1 primary"
	}
	return fmt.Sprintf("%d primaries", primaries)
}

// merge takes over what was found of several servers.
func (x *redisExam) merge(of []*redisExam, addrs []string) {
	found := make(map[Finding][]string)
	var order []Finding
	for i, o := range of {
		for _, f := range o.Findings {
			if found[f] == nil {
				order = append(order, f)
			}
			found[f] = append(found[f], addrs[i])
		}
	}
	slices.SortStableFunc(order, func(a, b Finding) int { return strings.Compare(a.About, b.About) })
	for _, f := range order {
		if where := found[f]; len(where) < len(of) {
			slices.Sort(where)
			f.Text = strings.Join(where, ", ") + ": " + f.Text
		}
		x.find(f.Level, f.About, f.Do, "%s", f.Text)
	}
}

// messages finds out whether scripts may tell those who wait.
func (x *redisExam) messages(ctx context.Context) {
	cluster := x.client.Mode() == rueidis.ClientModeCluster
	tell := func(command, channel string) error {
		ctx, cancel := context.WithTimeout(ctx, step)
		defer cancel()
		const script = "local r = redis.pcall(ARGV[1], ARGV[2], 't') return type(r) == 'table' and r.err or ''"
		text, err := x.client.Do(ctx, x.client.B().Eval().Script(script).Numkeys(1).Key("pawl:{doctor}").Arg(command, channel).Build()).ToString()
		if err == nil && text != "" {
			err = fmt.Errorf("%s: %s", command, text)
		}
		return err
	}
	channel := "pawl:mailbox:" + driver.NewID()[:16]
	one := tell("PUBLISH", channel)
	if one == nil {
		x.ok("messages", "scripts tell who is next")
		return
	}
	shards := one
	if cluster {
		shards = tell("SPUBLISH", channel+":{doctor}")
	}
	if shards == nil {
		x.ok("messages", "scripts tell who is next, by channels of shards: %v", one)
		return
	}
	x.warn("messages", "let scripts publish to pawl:mailbox:*", "scripts may tell nobody, so who waits learns by its heartbeat, within a third of its TTL: %v", shards)
}

// rights names the user, and what it needs.
func (x *redisExam) rights(ctx context.Context) {
	who, err := x.client.Do(ctx, x.client.B().AclWhoami().Build()).ToString()
	if err != nil {
		who = x.opt.Username // it may not ask
	}
	cluster := x.client.Mode() == rueidis.ClientModeCluster
	line := append([]string{"ACL SETUSER locks on >PASSWORD"}, redisstore.Rights(&redisstore.Options{Replicas: int(x.replicas)}, cluster)...)
	line = append(line, "+hello", "+ping", "+client")
	switch x.client.Mode() {
	case rueidis.ClientModeCluster:
		line = append(line, "+cluster|slots", "+cluster|shards", "+asking")
	case rueidis.ClientModeSentinel:
		line = append(line, "+role")
	}
	if who == "" || who == "default" {
		x.note("rights", "the user default may do everything, unless that was changed; just enough is: %s", strings.Join(line, " "))
		return
	}
	x.note("rights", "user %s; just enough is: %s", who, strings.Join(line, " "))
}
