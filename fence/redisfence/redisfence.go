// Package redisfence is a fence in Redis or Valkey: a write with an older token than one
// that was seen is refused, in the same script that writes.
//
// The highest token of each name is a string, by default at pawl:fence:{NAME}. It is to
// be as safe as the data that it guards: what a failover or an eviction takes away of both
// is the database's affair, but a token that is lost alone lets an old write in. So let
// no policy evict it, and put it into the same database.
//
// On a cluster all keys of a call must be in one slot: give the data's keys the hash tag
// {NAME}, or let [Options].Key put the token beside the data.
package redisfence

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/redisstore"
)

// Conn is what a fence needs of a client of Redis. A [redisstore.Conn] is one: see NewConn of
// redisstore/rueidis, redisstore/goredis and redisstore/valkeygo.
type Conn interface {
	Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error)
}

// Options of a fence.
type Options struct {
	// Key returns the key that keeps the token of a name. Default: pawl:fence:{NAME}.
	Key func(name string) string

	// Keep is how long a token is kept after the last write that bore one; 0: for ever.
	// It is to be longer than any holder may be paused, for whoever goes on later than
	// that is taken for the first. From a millisecond.
	Keep time.Duration
}

// Fence guards keys. Any goroutine may use it.
type Fence struct {
	conn Conn
	opts Options
}

// New makes a fence; o may be nil. It does no I/O.
func New(conn Conn, o *Options) (*Fence, error) {
	f := &Fence{conn: conn}
	if o != nil {
		f.opts = *o
	}
	if f.opts.Keep < 0 || f.opts.Keep > 0 && f.opts.Keep < time.Millisecond {
		return nil, fmt.Errorf("redis fence: %w Keep %v: allowed are 0 and a millisecond or more", fence.ErrInvalid, f.opts.Keep)
	}
	if f.opts.Key == nil {
		f.opts.Key = func(name string) string { return "pawl:fence:{" + name + "}" }
	}
	return f, nil
}

// Script is a Lua script that writes. Make it once, and use it often.
type Script struct{ script *redisstore.Script }

// NewScript makes a script of Lua source. It finds its own KEYS and ARGV, as if nothing
// were before it. What it returns becomes text: nil and false nothing, true 1, a status what
// it says, and any other table JSON.
func NewScript(source string) *Script {
	return &Script{redisstore.NewScript(guard + "local function write()\n" + source + "\nend\n" + reply)}
}

// Tokens are compared as text, since numbers of Lua end at 2^53. The n names come first, in
// KEYS, and in ARGV: n, how long to keep, the tokens.
const guard = `local n, keep = tonumber(ARGV[1]), ARGV[2]
for i = 1, n do
	local seen, token = redis.call('GET', KEYS[i]), ARGV[2 + i]
	if seen and not string.find(seen, '^[1-9][0-9]*$') then
		return redis.error_reply('ERR pawl: the key of a fencing token holds something else: ' .. KEYS[i])
	end
	if seen and (#seen > #token or #seen == #token and seen > token) then
		return '-' .. i .. ' ' .. seen
	end
end
for i = 1, n do
	if keep == '0' then
		redis.call('SET', KEYS[i], ARGV[2 + i])
	else
		redis.call('SET', KEYS[i], ARGV[2 + i], 'PX', keep)
	end
end
local keys, argv = {}, {}
for i = n + 1, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = n + 3, #ARGV do argv[#argv + 1] = ARGV[i] end
local KEYS, ARGV = keys, argv
`

// Numbers get all their digits, which tostring does not give them.
const reply = `local reply = write()
local kind = type(reply)
if kind == 'table' then
	if reply.err then return reply end
	return '+' .. (reply.ok or cjson.encode(reply))
elseif kind == 'number' then
	return '+' .. string.format('%.17g', reply)
elseif kind == 'boolean' then
	return reply and '+1' or '+'
end
return '+' .. (reply or '')
`

var (
	check = NewScript("")
	set   = NewScript("if ARGV[2] == '0' then redis.call('SET', KEYS[1], ARGV[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end")
)

// Check notes that the tokens were seen. It is a *[fence.StaleError] if a greater one of
// one of the names was. A holder calls it before it reads what its write depends on.
func (f *Fence) Check(ctx context.Context, tokens []fence.Token) error {
	_, err := f.Eval(ctx, tokens, check, nil)
	return err
}

// Set sets a key to a value, for ttl or, if that is 0, for ever, unless a greater token of
// one of the names was seen: then it is a *[fence.StaleError].
func (f *Fence) Set(ctx context.Context, tokens []fence.Token, key, value string, ttl time.Duration) error {
	if ttl < 0 || ttl > 0 && ttl < time.Millisecond {
		return fmt.Errorf("redis fence: set %q: %w TTL %v: allowed are 0 and a millisecond or more", key, fence.ErrInvalid, ttl)
	}
	_, err := f.Eval(ctx, tokens, set, []string{key}, value, strconv.FormatInt(ttl.Milliseconds(), 10))
	return err
}

// Eval runs a script, unless a greater token of one of the names was seen: then it is a
// *[fence.StaleError]. It returns what the script does, as text.
//
// An error of the script does not undo what it wrote before, nor that the token was
// seen. After an error of the connection it may have run, or may run yet: to repeat it
// with the same tokens is allowed, if the script can be repeated.
func (f *Fence) Eval(ctx context.Context, tokens []fence.Token, s *Script, keys []string, args ...string) (string, error) {
	tokens, err := fence.Ordered(tokens)
	if err != nil {
		return "", fmt.Errorf("redis fence: %w", err)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("redis fence %q: %w", tokens[0].Name, context.Cause(ctx))
	}
	all := make([]string, 0, len(tokens)+len(keys))
	argv := append(make([]string, 0, 2+len(tokens)+len(args)), strconv.Itoa(len(tokens)), strconv.FormatInt(f.opts.Keep.Milliseconds(), 10))
	for _, t := range tokens {
		all = append(all, f.opts.Key(t.Name))
		argv = append(argv, strconv.FormatInt(t.Value, 10))
	}
	reply, err := f.conn.Script(ctx, s.script, append(all, keys...), append(argv, args...))
	if err != nil {
		return "", fmt.Errorf("redis fence %q: write with token %d: %w", tokens[0].Name, tokens[0].Value, err)
	}
	return result(tokens, reply)
}

// result understands the reply of a guarded script.
func result(tokens []fence.Token, reply string) (string, error) {
	if text, ok := strings.CutPrefix(reply, "+"); ok {
		return text, nil
	}
	which, seen, _ := strings.Cut(strings.TrimPrefix(reply, "-"), " ")
	i, err := strconv.Atoi(which)
	if err != nil || i < 1 || i > len(tokens) {
		return "", fmt.Errorf("redis fence %q: cannot read the reply %.100q", tokens[0].Name, reply)
	}
	t := tokens[i-1]
	stale := &fence.StaleError{Name: t.Name, Token: t.Value}
	if stale.Seen, err = strconv.ParseInt(seen, 10, 64); err != nil {
		return "", fmt.Errorf("redis fence %q: cannot read the reply %.100q", t.Name, reply)
	}
	return "", stale
}
