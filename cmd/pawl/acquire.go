package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/cmd/pawl/internal/keeper"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
)

// keeping are the flags that say who takes care of a lock that no command runs under.
type keeping struct {
	pid       int
	noRenewal bool

	process keeper.Process // of pid
}

func (k *keeping) flags(f *pflag.FlagSet) {
	f.IntVar(&k.pid, "for-pid", 0, "hold it while this process lives: in a shell, $$")
	f.BoolVar(&k.noRenewal, "no-renewal", false, "hold it for --ttl, or until 'pawl renew'")
}

// check finds the process.
func (k *keeping) check(flags *pflag.FlagSet) (err error) {
	switch {
	case flags.Changed("for-pid") == k.noRenewal:
		return usage("who takes care of the lock? Give either --for-pid $$, or --no-renewal --ttl 10m")
	case k.noRenewal && !flags.Changed("ttl"):
		return usage("--no-renewal without --ttl: how long is it held at the most?")
	case k.noRenewal:
		return nil
	case k.pid < 1:
		return usage("--for-pid %d: it is the number of a process, as $$ is in a shell", k.pid)
	}
	if k.process, err = keeper.Find(k.pid); err != nil {
		return usage("--for-pid %d: %w", k.pid, err)
	}
	return nil
}

// suits returns an error if locks in that store can't be taken care of in this way.
func (k *keeping) suits(url string) error {
	switch scheme := schemeOf(url); {
	case scheme == "mem":
		return usage("mem:// ends with this process: such a lock would, too")
	case scheme == boundScheme && k.noRenewal:
		return usage("ZooKeeper keeps a lock no longer than a process is connected: use --for-pid, or 'pawl run'")
	}
	return nil
}

// boundScheme is the store where a lock lives no longer than a process is connected,
// and nobody else can renew it.
const boundScheme = "zk"

// schemeOf returns the scheme of a store, nothing if the URL is wrong.
func schemeOf(url string) string {
	u, err := storeurl.Parse(url)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// bound reports whether the store is that one.
func (a *app) bound() bool {
	url, err := a.store()
	return err == nil && schemeOf(url) == boundScheme
}

// owner is what others see as holder.
func (k *keeping) owner(label string) driver.Owner {
	host, _ := os.Hostname()
	o := driver.Owner{Label: label, Host: host, PID: k.pid}
	if name := k.process.Name(); o.Label == "" && !k.noRenewal && driver.CheckLabel(name) == nil {
		o.Label = name
	}
	return o
}

func (a *app) acquireCommand() *cobra.Command {
	o, k := &runOptions{kinds: true}, &keeping{}
	o.take = o.lock
	cmd := &cobra.Command{
		Use:   "acquire [flags] NAME",
		Short: "Take a lock without a command, and print its handle",
		Long: `Acquire waits for its turn to hold NAME, as 'pawl run' does, prints a handle of the
lock, and ends. The handle is all that 'pawl renew', 'pawl unlock', 'pawl handover'
and 'pawl adopt' need, also on another machine. Its second part is the token:
  token=$(echo "$h" | cut -d. -f2)

With --for-pid a small process (pawl keeper) renews the lock while the process of
that number lives, and releases it as soon as that one is gone, however it ended.
In a script that is $$, also inside $(...). The keeper has no terminal, and needs no
output of the script. With --no-renewal nobody renews it: it ends after --ttl, unless
'pawl renew' comes first.

Nobody ends the script when the lock is lost. 'pawl renew "$h"' tells (79) before a
step that matters; what the script writes to had better refuse smaller tokens.

Not on a quorum or on the keys of other libraries, where a lock can't be passed on to
another process: use 'pawl run'. On ZooKeeper not with --no-renewal.

Exit status:
  0    NAME is held, and the handle printed
  64   the call is wrong, or the store can't do this
  69   the store can't be reached
  71   the system lets pawl start no process that keeps the lock
  74   the handle can't be printed: NAME is released
  75   the lock is busy (-n), or was all the time (--timeout, -w); -E changes this
  79   the lock was lost before the handle was printed
  128+N  signal N ended it`,
		Example: `  h=$(pawl acquire --for-pid $$ deploy/prod) || exit
  ./migrate
  pawl unlock "$h"

  # for at most ten minutes, whatever becomes of this machine
  h=$(pawl acquire --no-renewal --ttl 10m device/7)`,
		Args: nameArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			flags := cmd.Flags()
			if err := o.checkAcquire(flags, k); err != nil {
				return err
			}
			return a.acquire(cmd.Context(), o, k)
		},
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	o.takingFlags(f)
	o.ownedFlags(f, k)
	f.BoolVarP(&o.quiet, "quiet", "q", false, "don't say that the lock is busy, or for whom pawl waits")
	o.logging.flags(f)
	return cmd
}

// ownedFlags are those of a lock that no command runs under.
func (o *runOptions) ownedFlags(f *pflag.FlagSet, k *keeping) {
	k.flags(f)
	f.DurationVar(&o.ttl, "ttl", pawl.DefaultTTL, "how long the lock lives if nobody renews it, or PAWL_TTL")
	f.StringVar(&o.label, "label", "", "what others see as holder (default: PAWL_LABEL, else the name of that process)")
}

// checkOwned checks those.
func (o *runOptions) checkOwned(flags *pflag.FlagSet, k *keeping) error {
	if err := fromEnvironment(flags); err != nil {
		return err
	}
	if o.ttl < child.MinTTL || o.ttl > driver.MaxTTL {
		return usage("%s %v: allowed are %v to %v", called(flags, "ttl"), o.ttl, child.MinTTL, driver.MaxTTL)
	}
	if err := o.checkLabel(flags); err != nil {
		return err
	}
	return k.check(flags)
}

func (o *runOptions) checkAcquire(flags *pflag.FlagSet, k *keeping) error {
	if err := o.checkOwned(flags, k); err != nil {
		return err
	}
	if err := o.checkTaking(flags); err != nil {
		return err
	}
	return o.kind.check(flags.Changed("units"), flags.Changed("limit"))
}

func (a *app) acquire(ctx context.Context, o *runOptions, k *keeping) error {
	s, err := a.session(o)
	if err != nil {
		return err
	}
	defer s.close()
	if err := k.suits(s.url); err != nil {
		return err
	}
	waiting, stop := s.sig.Context(ctx)
	defer stop()
	if err := s.canAdopt(waiting); err != nil {
		return err
	}
	lease, err := s.acquire(waiting)
	if told := new(child.Interrupted); lease == nil && errors.As(context.Cause(waiting), &told) {
		return told
	}
	if lease == nil {
		return o.conflicts(notRun, err)
	}
	// When another process has the claim, this changes nothing.
	defer lease.Unlock(ctx)
	h, err := handle.Parse(lease.Handle() + "@" + o.name)
	if err != nil {
		return err
	}
	err = a.passOn(waiting, s.url, s.store, h, o, k)
	if err == nil {
		s.log.stop() // of this process's own lease no more is to be told
	}
	return err
}

// canAdopt returns an error if no lock of this store can be passed on.
func (s *session) canAdopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, contactTimeout, errNoContact)
	defer cancel()
	return ownedError(unanswered(ctx, handle.CanAdopt(ctx, s.store, s.o.name)))
}

// ownedError gives an error of package handle its exit status.
func ownedError(err error) error {
	switch told := new(child.Interrupted); {
	case err == nil, errors.As(err, &told):
		return err
	case errors.Is(err, driver.ErrUnsupported):
		return usage("locks of this store can't be passed on to another process, use 'pawl run': %w", err)
	case errors.Is(err, pawl.ErrLost), errors.Is(err, pawl.ErrInvalid):
		return err
	case errors.As(err, new(*keeper.StartError)):
		return &failure{status: child.CannotGuard, err: err}
	}
	return engine(err)
}

// passOn passes the claim of h on to a keeper or to nobody, and prints the new handle.
func (a *app) passOn(ctx context.Context, url string, s driver.Store, h *handle.Handle, o *runOptions, k *keeping) error {
	owner := k.owner(o.label)
	if k.noRenewal {
		own, err := handle.Adopt(ctx, s, h, owner, o.ttl, true)
		if err != nil {
			return stopped(ctx, err)
		}
		if err = a.printHandle(ctx, own, 0); err != nil {
			a.giveBack(own, s)
		}
		return err
	}
	r := keeper.Request{Store: url, Handle: h.String(), TTL: o.ttl, Owner: owner, For: k.process}
	kept, err := keeper.Start(ctx, keeperName, r)
	if err != nil {
		return stopped(ctx, err)
	}
	if err := a.printHandle(ctx, kept.Handle, kept.PID); err != nil {
		kept.Stop()
		return err
	}
	return ownedError(kept.Go())
}

// stopped is ownedError, or the signal that has ended ctx.
func stopped(ctx context.Context, err error) error {
	if told := new(child.Interrupted); errors.As(context.Cause(ctx), &told) {
		return told
	}
	return ownedError(err)
}

func (a *app) giveBack(h *handle.Handle, s driver.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = h.Unlock(ctx, s) // else it runs out
}

// handleJSON is a lock without a command, for programs.
type handleJSON struct {
	Name   string `json:"name"`
	Handle string `json:"handle"`
	Claim  string `json:"claim"`
	Token  int64  `json:"token"`
	TTLMS  int64  `json:"ttl_ms"`
	Keeper int    `json:"keeper_pid,omitempty"`
}

// printHandle prints the handle, unless ctx has ended. Who does not see it does not have
// the lock.
func (a *app) printHandle(ctx context.Context, h *handle.Handle, keeper int) (err error) {
	if told := new(child.Interrupted); errors.As(context.Cause(ctx), &told) {
		return told
	}
	if a.json {
		err = a.printJSON(a.out, handleJSON{h.Name, h.String(), h.ID, h.Token, h.TTL.Milliseconds(), keeper})
	} else {
		_, err = io.WriteString(a.out, h.String()+"\n")
	}
	if err != nil {
		return &failure{status: exitWrite, err: fmt.Errorf("print the handle of %q, which is released: %w", h.Name, err)}
	}
	return nil
}

// keeperName is the command that keeps a lock for a process.
const keeperName = "keeper"

func (a *app) keeperCommand() *cobra.Command {
	return &cobra.Command{
		Use: keeperName, Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return keeper.Run(cmd.Context()) },
	}
}

// ttlLeft is how long a lock lives.
func ttlLeft(ends time.Time) int64 { return max(time.Until(ends), 0).Milliseconds() }
