//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

// recipes are the scripts of docs/RECIPES.md by their names.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, part := range strings.Split(string(text), "```sh ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		script, _, closed := strings.Cut(rest, "```\n")
		if !closed || all[name] != "" {
			t.Fatalf("recipe %q is not closed, or there twice", name)
		}
		all[name] = script
	}
	return all
}

// What the recipes call does nothing but write down that it was called, and under
// which name pawl has called it.
const standIn = `#!/bin/sh
echo "$(basename "$0") $* ${PAWL_NAME-}" >> "$D/calls"
`

func TestRecipes(t *testing.T) {
	all := recipes(t)
	for name, tt := range map[string]struct {
		calls string
		busy  string // flags of a holder who stands in the way, and the name
		then  int    // how the script ends then
	}{
		"cron":      {"report  report\n", "report", 0},
		"migration": {"migrate --token-from-env migrate/app\n", "", 0},
		"device":    {"flash firmware.bin \ntest-on-device  \n", "", 0},
		"restart":   {"restart  restart/web\nwait-until-healthy  restart/web\n", "", 0},
		"vip":       {"ip addr add 10.0.0.9/24 dev eth0 vip\narping -U -c 3 -I eth0 10.0.0.9 vip\nserve  vip\nip addr del 10.0.0.9/24 dev eth0 vip\n", "", 0},
		"forgotten": {"", "", 0},
		"backup":    {"report  data\nbackup  data\n", "", 0},
	} {
		text := all[name]
		delete(all, name)
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			for _, program := range strings.Fields("report migrate flash test-on-device restart wait-until-healthy ip arping serve backup") {
				if err := os.WriteFile(filepath.Join(b.Dir, program), []byte(standIn), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(proctest.Pawl, filepath.Join(b.Dir, "pawl")); err != nil {
				t.Fatal(err)
			}
			b.Vars = []string{"PATH=" + b.Dir + ":" + os.Getenv("PATH"), "VERSION=7", "JOB=8", "VIP=10.0.0.9/24", "HOSTNAME=here"}
			run := func(status int) {
				t.Helper()
				p := b.Command()
				p.Path, p.Args = "/bin/sh", []string{"/bin/sh", "-c", text}
				p.Start()
				p.Want(status)
			}
			if tt.busy != "" {
				holder := b.hold(tt.busy)
				run(tt.then)
				if calls := b.Read("calls"); calls != "" {
					t.Errorf("though it is busy, it called %s", calls)
				}
				b.Run("release", "--force", tt.busy).Want(0)
				holder.Want(79)
			}
			run(0)
			if calls := b.Read("calls"); calls != tt.calls {
				t.Errorf("called\n%s, want\n%s", calls, tt.calls)
			}
		})
	}
	for name := range all {
		t.Errorf("recipe %q is not tested", name)
	}
}
