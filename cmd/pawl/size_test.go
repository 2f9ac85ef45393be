package main

import (
	"os/exec"
	"strings"
	"testing"
)

// html/template, as text/template when it is used, looks methods up by names that are
// not known when it is linked: the linker then keeps all methods of all types, and a
// release is 36 MB large instead of 23.
func TestNoTemplates(t *testing.T) {
	t.Parallel()
	for _, tags := range []string{"grpcnotrace", "folder"} {
		out, err := exec.Command("go", "list", "-deps", "-tags="+tags, ".").CombinedOutput()
		if err != nil {
			t.Fatalf("list: %v\n%s", err, out)
		}
		if strings.Contains(string(out), "html/template\n") {
			t.Errorf("with -tags %s the command imports html/template", tags)
		}
	}
}
