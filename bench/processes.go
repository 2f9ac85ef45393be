package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// order is what the bench tells a process that it starts: itself, with the
// argument "worker" and this on the standard input. The input's end tells the
// worker that the bench is gone; its result goes to the standard output.
type order struct {
	Arena string // file
	Crew  *crew  `json:",omitempty"`
	Ring  *ring  `json:",omitempty"`
	Hold  *hold  `json:",omitempty"`
}

const workerArg = "worker"

// worker carries out the order on in.
func worker(in io.Reader, out io.Writer) error {
	dec := json.NewDecoder(in)
	var o order
	if err := dec.Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		io.Copy(io.Discard, in)
		cancel(errors.New("the bench has ended"))
	}()
	result, err := o.run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

func (o *order) run(ctx context.Context) (any, error) {
	if o.Hold != nil {
		return o.Hold.run(ctx)
	}
	a, unmap, err := mapArena(o.Arena)
	if err != nil {
		return nil, err
	}
	defer unmap()
	if o.Ring != nil {
		return o.Ring.run(ctx, a)
	}
	return o.Crew.run(ctx, a)
}

// send runs a worker and reads its result. When ctx ends, so does the worker.
func send(ctx context.Context, o order, result any) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, workerArg)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = in.Write(text)
	if err == nil {
		err = json.NewDecoder(out).Decode(result)
	}
	in.Close()
	if e := cmd.Wait(); e != nil {
		return fmt.Errorf("worker: %w", e) // it has said why
	}
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// processes lets several processes contend.
func (b *bench) processes(ctx context.Context, p peer) (metrics, error) {
	return b.gather(ctx, func(i int) order {
		return order{Crew: &crew{Engine: b.engine.name, Addr: b.addr, Peer: p.name, Name: "shared-" + p.name, Process: i, Goroutines: b.goroutines, OwnClients: b.ownClients, Work: b.work}}
	})
}

// ringAround passes a message around the processes.
func (b *bench) ringAround(ctx context.Context) (metrics, error) {
	return b.gather(ctx, func(i int) order {
		return order{Ring: &ring{Addr: b.addr, Process: i, Processes: b.procs}}
	})
}

// gather starts the workers, directs them, and adds up their results.
func (b *bench) gather(ctx context.Context, o func(i int) order) (metrics, error) {
	file := filepath.Join(b.dir, "arena")
	if err := os.RemoveAll(file); err != nil {
		return nil, err
	}
	a, unmap, err := mapArena(file)
	if err != nil {
		return nil, err
	}
	defer unmap()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tallies := make([]*tally, b.procs)
	errs := make(chan error, b.procs)
	for i := range b.procs {
		go func() {
			o := o(i)
			o.Arena = file
			tallies[i] = new(tally)
			err := send(ctx, o, tallies[i])
			if err != nil {
				cancel() // without one of them the others would wait for ever
			}
			errs <- err
		}()
	}
	m, err := b.direct(ctx, a, int64(b.procs))
	if err != nil {
		cancel()
	}
	for range b.procs {
		if e := <-errs; e != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = e
		}
	}
	if err != nil {
		return nil, err
	}
	return m, m.contended(a, tallies)
}
