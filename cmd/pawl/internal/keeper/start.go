// Package keeper is a small process that keeps a lock for another one, and gives it
// back when that one is gone.
package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
)

// The keeper's own ends of the two pipes by which it is started.
const (
	requestFD = 3
	replyFD   = 4
)

// Request is what a keeper is told, by a pipe: there may be a password in it.
type Request struct {
	Store  string        `json:"store"`
	Handle string        `json:"handle"` // of the claim to keep, which is another's until now
	TTL    time.Duration `json:"ttl"`
	Owner  driver.Owner  `json:"owner"`
	For    Process       `json:"for"`
}

// goOn is what it is told then, when all went well. If the pipe ends without that, the
// lock goes back.
const goOn = "go\n"

// reply is what it says when it has the claim, or why it has not.
type reply struct {
	Handle string `json:"handle,omitempty"`
	Error  string `json:"error,omitempty"`
	Kind   kind   `json:"kind,omitempty"`
}

// Keeper is one that has the claim, and waits to be told that all went well.
type Keeper struct {
	Handle *handle.Handle
	PID    int

	cmd  *exec.Cmd
	pipe *os.File
}

// StartError is a keeper that could not be started.
type StartError struct{ err error }

func (e *StartError) Error() string {
	return fmt.Sprintf("start the process that keeps the lock: %v", e.err)
}

// Unwrap returns why.
func (e *StartError) Unwrap() error { return e.err }

// Start starts a keeper, by this program's command of that name, that takes over the
// claim. Then Go or Stop must be called.
func Start(ctx context.Context, command string, r Request) (*Keeper, error) {
	k := &Keeper{}
	replies, err := k.start(command, fmt.Sprintf("for process %d", r.For.PID))
	if err != nil {
		return nil, &StartError{err}
	}
	defer replies.Close()
	stop := context.AfterFunc(ctx, func() { replies.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var said reply
	if err = json.NewEncoder(k.pipe).Encode(r); err == nil {
		err = json.NewDecoder(replies).Decode(&said)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = &StartError{fmt.Errorf("it ended before it had the lock: %w", err)}
	case said.Error != "":
		err = &toldError{said.Error, kinds[said.Kind]}
	default:
		k.Handle, err = handle.Parse(said.Handle)
	}
	if err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

// start starts the process; what it is for is told to who lists processes.
func (k *Keeper) start(command, what string) (replies *os.File, err error) {
	self, err := os.Executable()
	if runtime.GOOS == "linux" { // also when its file has been replaced since
		self, err = "/proc/self/exe", nil
	}
	if err != nil {
		return nil, err
	}
	request, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer request.Close()
	replies, reply, err := os.Pipe()
	if err != nil {
		pipe.Close()
		return nil, err
	}
	defer reply.Close()
	k.cmd, k.pipe = exec.Command(self, command, what), pipe
	k.cmd.ExtraFiles = []*os.File{request, reply} // requestFD, replyFD
	k.cmd.SysProcAttr = detached()
	if err := k.cmd.Start(); err != nil {
		pipe.Close()
		replies.Close()
		return nil, err
	}
	k.PID = k.cmd.Process.Pid
	return replies, nil
}

// Go lets the keeper go on alone.
func (k *Keeper) Go() error {
	if _, err := io.WriteString(k.pipe, goOn); err != nil {
		k.Stop()
		return &StartError{fmt.Errorf("tell it to go on: %w", err)}
	}
	k.pipe.Close()
	return k.cmd.Process.Release()
}

// Stop has the keeper give the lock back, and waits for its end.
func (k *Keeper) Stop() {
	k.pipe.Close()
	_ = k.cmd.Wait() // it has said all that there is to say
}
