package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
)

// kind is what an error is, where that matters to who is told of it.
type kind string

var kinds = map[kind]error{"lost": pawl.ErrLost, "invalid": pawl.ErrInvalid, "unsupported": driver.ErrUnsupported}

func kindOf(err error) kind {
	for k, target := range kinds {
		if errors.Is(err, target) {
			return k
		}
	}
	return ""
}

// toldError is an error that a keeper has told of.
type toldError struct {
	text string
	is   error // nil: none of those
}

func (e *toldError) Error() string        { return e.text }
func (e *toldError) Is(target error) bool { return e.is != nil && target == e.is }

// How long a keeper tries to take the claim over, and how long it does not look for
// signals at the most.
const (
	takeTimeout = 5 * time.Second
	nap         = 500 * time.Millisecond
)

// Run is the whole life of a keeper.
func Run(ctx context.Context) error {
	pipe, out := os.NewFile(requestFD, "request"), os.NewFile(replyFD, "reply")
	in := bufio.NewReader(pipe)
	var r Request
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		return fmt.Errorf("read what to keep (this is started by 'pawl acquire' and 'pawl adopt'): %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGHUP) // it has no terminal

	store, h, err := r.take(ctx)
	if err != nil {
		return errors.Join(err, json.NewEncoder(out).Encode(reply{Error: err.Error(), Kind: kindOf(err)}))
	}
	defer store.Close()
	_ = os.Chdir("/") // or a disk could not be unmounted
	watch := r.For.Watch()
	defer watch.Close()
	if err = json.NewEncoder(out).Encode(reply{Handle: h.String()}); err == nil {
		if line, _ := in.ReadString('\n'); line != goOn {
			err = errors.New("who has asked for the lock does not want it any more")
		}
	}
	out.Close()
	pipe.Close()
	if err == nil {
		err = keep(ctx, store, h, watch, signals)
	}
	if errors.Is(err, pawl.ErrLost) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.TTL) // after that it has run out
	defer cancel()
	return errors.Join(err, h.Unlock(ctx, store))
}

// take makes the claim that was named the keeper's.
func (r *Request) take(ctx context.Context) (driver.Store, *handle.Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	h, err := handle.Parse(r.Handle)
	if err != nil {
		return nil, nil, err
	}
	store, err := storeurl.Open(r.Store)
	if err != nil {
		return nil, nil, err
	}
	if h, err = handle.Adopt(ctx, store, h, r.Owner, r.TTL, false); err != nil {
		store.Close() // the other error is what matters
		return nil, nil, err
	}
	return store, h, nil
}

// keep renews the claim until the process is gone or a signal came, and returns nil
// then; or until the claim is lost. A store that fails is asked again and again, for
// the claim may have outlived that.
func keep(ctx context.Context, s driver.Store, h *handle.Handle, w *Watch, signals <-chan os.Signal) error {
	next := time.Now().Add(h.TTL / 3)
	for !w.Gone(min(time.Until(next), nap)) {
		select {
		case <-signals:
			return nil
		default:
		}
		if time.Now().Before(next) {
			continue
		}
		one, cancel := context.WithTimeout(ctx, min(h.TTL/4, 10*time.Second))
		err := h.Keep(one, s)
		cancel()
		switch {
		case errors.Is(err, pawl.ErrLost):
			return err
		case err != nil && !driver.IsPermanent(err):
			next = time.Now().Add(min(h.TTL/30, time.Second))
		default: // or until somebody has mended it
			next = time.Now().Add(h.TTL / 3)
		}
	}
	return nil
}
