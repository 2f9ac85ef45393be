package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// What makes a server one of a quorum; see driver.Node. Its memory is a key beside the
// mark of all tokens, which is lost with them, and holds for one run of the server:
// what a server loads when it starts may be older than what it promised.

var errNode = fmt.Errorf("%w: a cluster cannot be one of a quorum", driver.ErrUnsupported)

// Vote is Enter by another script.
func (s *store) Vote(ctx context.Context, v driver.Vote) (driver.Status, error) {
	if s.cluster {
		return driver.Status{}, errNode
	}
	return s.enter(ctx, &v.Claim, voteScript,
		v.Epoch, strconv.FormatInt(v.Floor, 10), strconv.FormatInt(v.Token, 10))
}

func (s *store) Withdraw(ctx context.Context, name, id string, token int64) (driver.State, error) {
	reply, err := s.run(ctx, withdrawScript, s.keys(name, ""), []string{id, strconv.FormatInt(token, 10)})
	if err != nil {
		return driver.Gone, err
	}
	is, err := parseLeft(reply)
	if err == nil && is == driver.Gone {
		s.box.forget(id)
	}
	return is, err
}

func (s *store) Memory(ctx context.Context) (driver.Memory, error) { return s.remember(ctx) }

func (s *store) Quarantine(ctx context.Context, d time.Duration) (driver.Memory, error) {
	return s.remember(ctx, driver.NewID(), strconv.FormatInt(queue.Micros(d), 10))
}

func (s *store) Remember(ctx context.Context, a driver.Admission) (driver.Memory, error) {
	atOnce := "0"
	if a.AtOnce {
		atOnce = "1"
	}
	return s.remember(ctx, a.Quarantine, a.Epoch, strconv.FormatInt(a.Mark, 10), atOnce)
}

// remember reads the memory of the node, and changes it as args say; see
// lua/memory.lua.
func (s *store) remember(ctx context.Context, args ...string) (m driver.Memory, err error) {
	if s.cluster {
		return m, errNode
	}
	reply, err := s.run(ctx, memoryScript, []string{s.memory, s.mark("")}, args)
	if err != nil {
		return m, err
	}
	f := fields{rest: reply}
	m.Mark = f.int()
	if m.Epoch = f.word(); m.Epoch == "-" {
		m.Epoch = ""
	}
	if m.Quarantine = f.word(); m.Quarantine == "-" {
		m.Quarantine = ""
	}
	m.Left = queue.Span(f.int())
	if f.bad {
		return driver.Memory{}, errReply(reply)
	}
	return m, nil
}

// parseVoted is parseEntered for a vote, which may also be refused:
//
//	e EPOCH
func parseVoted(reply string, sent time.Time, c *driver.Claim, epoch string) (driver.Status, error) {
	have, refused := strings.CutPrefix(reply, "e ")
	if !refused {
		return parseEntered(reply, sent, c)
	}
	if have == "-" {
		have = ""
	}
	return driver.Status{}, &driver.EpochError{Want: epoch, Have: have}
}

func parseLeft(reply string) (driver.State, error) {
	switch reply {
	case "h":
		return driver.Holding, nil
	case "w":
		return driver.Waiting, nil
	case "g":
		return driver.Gone, nil
	}
	return driver.Gone, errReply(reply)
}

// refused reports whether the server has replied that it entered nothing.
func refused(err error) bool {
	if _, mismatch := err.(*driver.MismatchError); mismatch {
		return true
	}
	_, epoch := errors.AsType[*driver.EpochError](err)
	return epoch
}
