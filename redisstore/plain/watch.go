package plain

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

// Where scripts are forbidden: a transaction that is carried out only if nobody has
// touched the key since it was read.

// attempts bounds the transactions that others were faster than.
const attempts = 100

// watched reads the key (and its mark), and carries out what decide makes of that: all of
// it or nothing, and once more from the beginning if somebody was faster.
func (s *store) watched(ctx context.Context, keys []string, decide func(k *seen, mark int64) [][]string) error {
	for range attempts {
		if err := s.ended(ctx); err != nil {
			return err
		}
		done := false
		err := s.conn.Own(ctx, keys[0], func(pipe Pipe) error {
			k, mark, err := s.read(ctx, pipe, keys)
			if err != nil {
				return err
			}
			done, err = execute(ctx, pipe, decide(k, mark))
			return err
		})
		if err != nil {
			return withoutTransactions(err)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("others changed the key %d times in a row", attempts)
}

// read watches the keys, reads the lock's, the time and the mark, and begins a
// transaction. That is here and not beside the commands because these would be carried out
// at once, each for itself, by a server that allows no MULTI.
func (s *store) read(ctx context.Context, pipe Pipe, keys []string) (k *seen, mark int64, err error) {
	commands := [][]string{append([]string{"WATCH"}, keys...), {"GET", keys[0]}, {"PTTL", keys[0]}, {"TIME"}}
	if len(keys) > 1 {
		commands = append(commands, []string{"GET", keys[1]})
	}
	commands = append(commands, []string{"MULTI"})
	rs, err := counted(len(commands))(pipe(ctx, commands...))
	if err == nil {
		err = firstErr(rs)
	}
	if err != nil {
		return nil, 0, err
	}
	k = &seen{}
	if err := k.fill(&rs[1], &rs[2], &rs[3]); err != nil {
		return nil, 0, err
	}
	if len(keys) > 1 && !rs[4].Null {
		if mark, err = strconv.ParseInt(rs[4].Text, 10, 64); err != nil || mark < 0 {
			return nil, 0, &redisstore.ServerError{Text: "pawl: cannot read the mark " + keys[1]}
		}
	}
	return k, mark, nil
}

// fill reads the replies to GET, PTTL and, if it was asked, TIME.
func (k *seen) fill(text, left, now *Reply) (err error) {
	k.there, k.text = !text.Null, text.Text
	if k.left, err = strconv.ParseInt(left.Text, 10, 64); err != nil {
		return errReply(left.Text)
	}
	if now == nil {
		return nil
	}
	if len(now.List) != 2 {
		return errReply(now.Text)
	}
	seconds, err := strconv.ParseInt(now.List[0].Text, 10, 64)
	micros, err2 := strconv.ParseInt(now.List[1].Text, 10, 64)
	if err != nil || err2 != nil {
		return errReply(now.List[0].Text)
	}
	k.now = seconds*1e6 + micros
	return nil
}

// execute ends the transaction with these commands, and reports whether the server has
// carried them out; it does not if a key that is watched was touched.
func execute(ctx context.Context, pipe Pipe, commands [][]string) (bool, error) {
	last := "EXEC"
	if len(commands) == 0 {
		last = "DISCARD"
	}
	rs, err := counted(len(commands) + 1)(pipe(ctx, append(commands, []string{last})...))
	if err == nil {
		err = firstErr(rs) // what was refused before EXEC says why; EXEC does not
	}
	if err != nil || len(commands) == 0 {
		return err == nil, err
	}
	exec := &rs[len(rs)-1]
	if exec.Null {
		return false, nil
	}
	if _, err := counted(len(commands))(exec.List, firstErr(exec.List)); err != nil {
		return false, err
	}
	// 0 or nothing: the key ran out in the middle, which older servers do not take for touched.
	return !exec.List[0].Null && exec.List[0].Text != "0", nil
}

// withoutTransactions says what is wrong where transactions are forbidden, too.
func withoutTransactions(err error) error {
	if forbidden(err, "watch", "multi", "exec", "discard") {
		return fmt.Errorf("%w: a plain lock needs scripts (EVALSHA, EVAL), or transactions (WATCH, MULTI, EXEC, DISCARD), and the server allows neither: %w",
			driver.ErrUnsupported, err)
	}
	return err
}

func (s *store) takeWatched(ctx context.Context, c *driver.Claim, ttl time.Duration) (taken, error) {
	var t taken
	keys := s.keys(c.Name)
	err := s.watched(ctx, keys, func(k *seen, mark int64) [][]string {
		t = taken{}
		v, mine := k.mine(c.ID)
		switch {
		case !k.there:
			v = value{id: c.ID, token: max(k.now, mark+1), owner: c.Owner}
			t.token = v.token
			commands := [][]string{{"SET", keys[0], v.text(), "PX", millis(ttl), "NX"}}
			if len(keys) > 1 {
				commands = append(commands, []string{"SET", keys[1], strconv.FormatInt(v.token, 10), "PX", millis(markLife)})
			}
			return commands
		case !mine:
			t.other = k
		case v.lingering:
			t.left = true
		default:
			t.token = v.token
			return k.lengthen(keys[0], ttl)
		}
		return nil
	})
	if err != nil {
		return taken{}, err
	}
	return t, nil
}

// lengthen is what gives the key ttl, unless it has that.
func (k *seen) lengthen(key string, ttl time.Duration) [][]string {
	px := millis(ttl)
	if have, err := strconv.ParseInt(px, 10, 64); err == nil && k.left >= have {
		return nil
	}
	return [][]string{{"PEXPIRE", key, px}}
}

// renewWatched returns the token of a claim that was renewed, 0 for one that is not
// there.
func (s *store) renewWatched(ctx context.Context, r *driver.Ref) (token int64, err error) {
	key := s.key(r.Name)
	err = s.watched(ctx, []string{key}, func(k *seen, _ int64) [][]string {
		token = 0
		v, mine := k.mine(r.ID)
		if !mine || v.lingering {
			return nil
		}
		token = v.token
		return k.lengthen(key, r.TTL)
	})
	return token, err
}

func (s *store) releaseWatched(ctx context.Context, key, id string, linger time.Duration) (held bool, err error) {
	err = s.watched(ctx, []string{key}, func(k *seen, _ int64) [][]string {
		v, mine := k.mine(id)
		held = mine && !v.lingering
		switch {
		case !held:
			return nil
		case linger > 0:
			return [][]string{{"SET", key, lingers + k.text, "PX", millis(linger)}}
		}
		return [][]string{{"DEL", key}}
	})
	return held, err
}

// deleter returns the server's command that compares and deletes, or nothing. The server
// is asked once.
func (s *store) deleter(ctx context.Context) (string, error) {
	if known := s.native.Load(); known != nil {
		return *known, nil
	}
	names := []string{"DELEX", "DELIFEQ"}
	rs, err := s.pipe(ctx, "", append([]string{"COMMAND", "INFO"}, names...))
	if err != nil {
		return "", err
	}
	if err := rs[0].Err; err != nil && !forbidden(err, "command", "command|info") {
		return "", err
	}
	found := ""
	if list := rs[0].List; len(list) == len(names) {
		for i, name := range names {
			if found == "" && len(list[i].List) > 0 {
				found = name
			}
		}
	}
	s.native.Store(&found)
	return found, nil
}

// releaseNative deletes the key by the server's own command, which wants to know the
// whole value: so that is read before.
func (s *store) releaseNative(ctx context.Context, command, key, id string) (held bool, err error) {
	rs, err := s.pipe(ctx, key, []string{"GET", key})
	if err == nil {
		err = rs[0].Err
	}
	if err != nil {
		return false, err
	}
	k := &seen{there: !rs[0].Null, text: rs[0].Text}
	if v, mine := k.mine(id); !mine || v.lingering {
		return false, nil
	}
	words := []string{command, key, k.text} // DELIFEQ
	if command == "DELEX" {
		words = []string{command, key, "IFEQ", k.text}
	}
	rs, err = s.pipe(ctx, key, words)
	if err == nil {
		err = rs[0].Err
	}
	if forbidden(err, "delex", "delifeq") { // the server has it, and not for this user
		none := ""
		s.native.Store(&none)
		return s.releaseWatched(ctx, key, id, 0)
	}
	if err != nil {
		return false, err
	}
	return rs[0].Text == "1", nil
}
