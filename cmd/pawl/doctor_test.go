//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/cmd/pawl/internal/doctor"
)

func TestDoctor(t *testing.T) {
	b := newBundle(t)
	p := b.Run("doctor").Want(0)
	for _, text := range []string{"file:///", "mode 0700", " on this machine, ", "p50", "lock        taken and released in "} {
		if !strings.Contains(p.Out.String(), text) {
			t.Errorf("%q is not told:\n%s", text, p.Out)
		}
	}
	if list := b.Run("list", "--json").Want(0); list.Out.String() != "[]\n" {
		t.Errorf("left behind: %s", list.Out)
	}
	var r doctor.Report
	b.Run("doctor", "--json").Want(0).JSON(&r)
	if r.Engine != "folder" || !r.Reachable || r.Worst != doctor.OK || r.RoundTrip == nil || r.RoundTrip.Probes < 2 || len(r.Findings) < 4 {
		t.Errorf("%+v", r)
	}
}

func TestDoctorFindsFault(t *testing.T) {
	b := newBundle(t)
	open := b.Dir + "/open"
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"--store mem://", 0, "one process"},
		{"--store file://" + open, 69, "chmod 700"},
		{"--store redis://u:secret@127.0.0.1:1", 69, "refused"},
		{"--store redis://u:secret@127.0.0.1:1/x", 64, "number"},
		{"--store nfs://u:secret@x", 64, "unknown scheme"},
		{"--ttl 1ms", 64, "--ttl"},
		{"--ttl 9999h", 64, "--ttl"},
		{"x", 64, "doctor takes no arguments: name the store with --store"},
	} {
		p := b.Run(append([]string{"doctor"}, strings.Fields(tt.args)...)...).Want(tt.status)
		if text := p.Printed(); !strings.Contains(text, tt.want) || strings.Contains(text, "secret") {
			t.Errorf("%s: want %q:\n%s", tt.args, tt.want, text)
		}
	}
}
