package plain

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The code of the page is code that compiles.
func TestMigrating(t *testing.T) {
	page, err := os.ReadFile("../../docs/MIGRATING.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compiled := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?s)\t//: \w+\n(.*?)\t//:\n`).FindAllSubmatch(source, -1) {
		compiled[strings.ReplaceAll("\n"+string(m[1]), "\n\t", "\n")] = true
	}
	shown := regexp.MustCompile("(?s)```go(\n.*?)```").FindAllSubmatch(page, -1)
	for _, m := range shown {
		if !compiled[string(m[1])] {
			t.Errorf("no Example has this code:%s", m[1])
		}
	}
	if len(shown) != len(compiled) || len(shown) == 0 {
		t.Errorf("the page shows %d pieces of code, the Examples have %d", len(shown), len(compiled))
	}
}
