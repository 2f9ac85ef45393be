//go:build !unix

package torture

import (
	"errors"
	"os"
	"os/exec"
)

func prepare(*exec.Cmd) {}

func awaitStopped(int) {}

func stopProcess(*os.Process) error { return errors.ErrUnsupported }

func continueProcess(*os.Process) error { return errors.ErrUnsupported }

func dump(*os.Process) {}
