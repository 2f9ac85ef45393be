package sdnotify

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFind(t *testing.T) {
	for _, tt := range []struct {
		env      string
		found    bool
		watchdog time.Duration
		wrong    string
	}{
		{"", false, 0, ""},
		{"WATCHDOG_USEC=5", false, 0, ""},
		{"NOTIFY_SOCKET=/run/notify", true, 0, ""},
		{"NOTIFY_SOCKET=@notify SYSTEMD_EXEC_PID=7", true, 0, ""},
		{"NOTIFY_SOCKET=@notify SYSTEMD_EXEC_PID=8", false, 0, ""},
		{"NOTIFY_SOCKET=notify", false, 0, `NOTIFY_SOCKET "notify"`},
		{"NOTIFY_SOCKET=@", false, 0, `NOTIFY_SOCKET "@"`},
		{"NOTIFY_SOCKET=vsock:2:1", false, 0, "vsock"},
		{"NOTIFY_SOCKET=@n WATCHDOG_USEC=3000000", true, 3 * time.Second, ""},
		{"NOTIFY_SOCKET=@n WATCHDOG_USEC=3000000 WATCHDOG_PID=7", true, 3 * time.Second, ""},
		{"NOTIFY_SOCKET=@n WATCHDOG_USEC=3000000 WATCHDOG_PID=8", true, 0, ""},
		{"NOTIFY_SOCKET=@n WATCHDOG_USEC=3s", true, 0, `WATCHDOG_USEC "3s"`},
		{"NOTIFY_SOCKET=@n WATCHDOG_USEC=0", true, 0, `WATCHDOG_USEC "0"`},
		{"NOTIFY_SOCKET=@n WATCHDOG_USEC=9223372036854775807", true, 0, "WATCHDOG_USEC"},
	} {
		m, err := Find(func(name string) (string, bool) {
			for v := range strings.FieldsSeq(tt.env) {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value, true
				}
			}
			return "", false
		}, 7)
		if (m != nil) != tt.found || m != nil && m.Watchdog != tt.watchdog {
			t.Errorf("%s: %+v", tt.env, m)
		}
		if (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v, want %q", tt.env, err, tt.wrong)
		}
	}
}

func TestChild(t *testing.T) {
	env := strings.Fields("A=1 NOTIFY_SOCKET=/n WATCHDOG_USEC=1 WATCHDOG_PID=2 SYSTEMD_EXEC_PID=2 NOTIFY_SOCKETS=3")
	for pass, want := range map[bool]string{
		false: "A=1 SYSTEMD_EXEC_PID=2 NOTIFY_SOCKETS=3",
		true:  "A=1 NOTIFY_SOCKET=/n WATCHDOG_USEC=1 NOTIFY_SOCKETS=3",
	} {
		if got := strings.Join(Child(slices.Clone(env), pass), " "); got != want {
			t.Errorf("pass %v: %s, want %s", pass, got, want)
		}
	}
}

func TestStatusIsOneLine(t *testing.T) {
	m := &Manager{}
	m.Status("old")
	m.Status("a\nMAINPID=1\r\x00\u0085b\xff")
	if got := m.pending[0].value; got != "a MAINPID=1   b\uFFFD" || len(m.pending) != 1 {
		t.Errorf("%q of %d", got, len(m.pending))
	}
	m.Status(strings.Repeat("ü", mostStatus))
	if got := m.pending[0].value; len(got) > mostStatus || strings.Trim(got, "ü") != "" {
		t.Errorf("%q", got)
	}
	m.Status("a" + strings.Repeat("ü", mostStatus))
	if got := m.pending[0].value; len(got) > mostStatus || strings.Trim(got[1:], "ü") != "" {
		t.Errorf("%q", got)
	}
}

// Of READY and STOPPING the last that is told counts, and one is enough.
func TestLastCounts(t *testing.T) {
	m := &Manager{}
	m.Ready()
	m.Stopping()
	if len(m.pending) != 1 || m.pending[0].name != "STOPPING" {
		t.Errorf("%+v", m.pending)
	}
}
