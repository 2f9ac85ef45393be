package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
)

// ownedStatus is the exit status of the commands that take a handle.
const ownedStatus = `
Exit status:
  0    done
  64   the call is wrong, or the store can't do this
  69   the store can't be reached, or did not reply: what has been done is not known
  79   the lock is lost: it was released, taken away, passed on, or not renewed`

// handleArg takes one HANDLE of pawl acquire.
func handleArg(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("one HANDLE is needed, as 'pawl acquire' prints it; there are %d arguments", len(args))
	}
	h, err := handle.Parse(args[0])
	if err == nil && !h.Owned() {
		return usage("handle %q is that of a process, which renews and unlocks it: it can only be adopted", args[0])
	}
	return err
}

// owned runs f on the store, within the time that a request may take.
func (a *app) owned(ctx context.Context, text string, f func(context.Context, driver.Store, *handle.Handle) error) error {
	h, err := handle.Parse(text)
	if err != nil {
		return err
	}
	url, err := a.store()
	if err != nil {
		return err
	}
	s, err := open(url)
	if err != nil {
		return err
	}
	defer s.Close() // what was written is there
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoContact)
	defer cancel()
	return ownedError(unanswered(ctx, f(ctx, s, h)))
}

func (a *app) renewCommand() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "renew HANDLE",
		Short: "Renew a lock that 'pawl acquire' has taken",
		Long: `Renew has the lock live for as long as it was acquired for, counted from now, or for
--ttl; or leaves it what it has if that is more. The handle stays as it is. It prints
nothing: its status tells whether the lock is held still, also where a keeper
renews it. On ZooKeeper, where a keeper alone can, it does no more than that.
` + ownedStatus,
		Example: `  pawl renew "$h" || exit
  ./write --token "$token"`,
		Args: handleArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("ttl") && (ttl < child.MinTTL || ttl > driver.MaxTTL) {
				return usage("--ttl %v: allowed are %v to %v", ttl, child.MinTTL, driver.MaxTTL)
			}
			return a.owned(cmd.Context(), args[0], func(ctx context.Context, s driver.Store, h *handle.Handle) error {
				if ttl == 0 {
					ttl = h.TTL
				}
				renew := func() (time.Time, error) { return h.Renew(ctx, s, ttl) }
				if a.bound() {
					renew = func() (time.Time, error) { return h.Look(ctx, s) }
				}
				ends, err := renew()
				if err != nil || !a.json {
					return err
				}
				return a.printJSON(a.out, handleJSON{Name: h.Name, Handle: h.String(), Claim: h.ID, Token: h.Token, TTLMS: ttlLeft(ends)})
			})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long it lives from now (default: as it was acquired)")
	return cmd
}

func (a *app) unlockCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unlock HANDLE",
		Short: "Release a lock that 'pawl acquire' has taken",
		Long: `Unlock releases the lock; the next in the queue gets it at once. It prints nothing.
A keeper finds that out, and ends.
` + ownedStatus,
		Example: `  h=$(pawl acquire --for-pid $$ deploy/prod) || exit
  ./migrate
  pawl unlock "$h"`,
		Args: handleArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.owned(cmd.Context(), args[0], func(ctx context.Context, s driver.Store, h *handle.Handle) error {
				if err := h.Unlock(ctx, s); err != nil || !a.json {
					return err
				}
				return a.printJSON(a.out, handleJSON{Name: h.Name, Handle: h.String(), Claim: h.ID, Token: h.Token})
			})
		},
	}
}

func (a *app) handoverCommand() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "handover HANDLE",
		Short: "Give up a lock for another machine to adopt",
		Long: `Handover takes the lock from its keeper, and from whoever has the old handle, and
prints a new handle, for 'pawl adopt' within --ttl, on this machine or another one.
Nobody else gets the lock meanwhile, unless that time is over. The process that it was
held for may end.

Where both sides live at the same time, it is not needed: 'pawl adopt' takes the
lock over from its keeper, too. On ZooKeeper there is only that.
` + ownedStatus,
		Example: `  ssh other "pawl adopt --for-pid \$\$ '$(pawl handover "$h")' && ./second-half"`,
		Args:    handleArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < child.MinTTL || ttl > driver.MaxTTL {
				return usage("--ttl %v: allowed are %v to %v", ttl, child.MinTTL, driver.MaxTTL)
			}
			return a.adopt(cmd.Context(), args[0], &runOptions{ttl: ttl}, &keeping{noRenewal: true})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", time.Minute, "how long it waits to be adopted")
	return cmd
}

func (a *app) adoptCommand() *cobra.Command {
	o, k := &runOptions{}, &keeping{}
	cmd := &cobra.Command{
		Use:   "adopt [flags] HANDLE",
		Short: "Take over a lock from another process or machine",
		Long: `Adopt takes over the lock of a handle that 'pawl acquire', 'pawl handover' or 'pawl
adopt' printed, and prints a new one, with a greater token. Of two who adopt one
handle, one gets the lock. --for-pid and --no-renewal are those of 'pawl acquire'.

It also takes the handle of a lease in a Go program (Lease.HandOver), with an @
and the name behind it: HANDLE@NAME. A program adopts one of pawl's by the
first two of its parts: ID.TOKEN; of permits and readers, by the first three.
` + ownedStatus,
		Example: `  h=$(pawl adopt --for-pid $$ "$from_the_other_machine") || exit`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("one HANDLE is needed, as 'pawl acquire' prints it; there are %d arguments", len(args))
			}
			_, err := handle.Parse(args[0])
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOwned(cmd.Flags(), k); err != nil {
				return err
			}
			return a.adopt(cmd.Context(), args[0], o, k)
		},
	}
	o.ownedFlags(cmd.Flags(), k)
	return cmd
}

// adopt passes a lock on, as passOn does.
func (a *app) adopt(ctx context.Context, text string, o *runOptions, k *keeping) error {
	url, err := a.store()
	if err != nil {
		return err
	}
	if err := k.suits(url); err != nil {
		return err
	}
	sig := child.Catch()
	defer sig.Stop()
	ctx, stop := sig.Context(ctx)
	defer stop()
	return a.owned(ctx, text, func(ctx context.Context, s driver.Store, h *handle.Handle) error {
		return a.passOn(ctx, url, s, h, o, k)
	})
}
