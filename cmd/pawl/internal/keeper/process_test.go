//go:build linux || darwin

package keeper

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
)

// Another process of the same number is another process.
func TestProcessOfTheSameNumber(t *testing.T) {
	me, err := Find(os.Getpid())
	if err != nil || !me.Lives() {
		t.Fatalf("%+v, %v", me, err)
	}
	w := me.Watch()
	defer w.Close()
	if w.Gone(time.Millisecond) {
		t.Error("this process is gone")
	}
	former := Process{me.PID, "1"}
	if former.Lives() {
		t.Error("a process that began at another time lives")
	}
	other := former.Watch()
	defer other.Close()
	if !other.Gone(0) {
		t.Error("a process that began at another time is watched")
	}
}

// A process that nobody has collected is gone.
func TestProcessThatIsNotCollected(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	w := p.Watch()
	defer w.Close()
	cmd.Process.Kill()
	for end := time.Now().Add(await.Limit); !w.Gone(time.Second); {
		if time.Now().After(end) {
			t.Fatal("it is not gone")
		}
	}
	if _, err := Find(p.PID); err == nil || !strings.Contains(err.Error(), "there is no such process") {
		t.Error(err)
	}
	cmd.Wait()
	if p.Lives() {
		t.Error("it lives")
	}
}
