package filestore

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/driver"
)

func TestFileName(t *testing.T) {
	for name, want := range map[string]string{
		"orders":         "orders.json",
		"orders/42":      "orders%2f42.json",
		"Orders":         "+orders.json",
		"+orders":        "%2borders.json",
		"a%2fb":          "a%252fb.json",
		"v1.2":           "v1.2.json",
		".":              "%2e.json",
		"..":             "%2e..json",
		"../../etc":      "%2e.%2f..%2fetc.json",
		".hidden":        "%2ehidden.json",
		"end.":           "end..json",
		"end ":           "end%20.json",
		`a\b:c*d?e"f`:    "a%5cb%3ac%2ad%3fe%22f.json",
		"a<b>|c~d'e":     "a%3cb%3e%7cc%7ed%27e.json",
		"con":            "%63on.json",
		"CON":            "+c+o+n.json",
		"nul.txt":        "%6eul.txt.json",
		"com1":           "%63om1.json",
		"com12":          "com12.json",
		"console":        "console.json",
		"größe":          "gr%c3%b6%c3%9fe.json",
		"gro\u0308ße":    "gro%cc%88%c3%9fe.json", // the same to the eye
		"a.json":         "a.json.json",
		"aside":          "aside.json",
		"under_score-42": "under_score-42.json",
	} {
		if got := recordFileName(name); got != want {
			t.Errorf("recordFileName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestLongFileNames(t *testing.T) {
	seen := make(map[string]string)
	for _, tail := range []string{"", "a", "b", "B", "é", strings.Repeat("y", 100)} {
		name := strings.Repeat("x", 200) + tail
		file := recordFileName(name)
		if len(file) > 255 {
			t.Errorf("the file of %q has %d bytes", name, len(file))
		}
		if other, ok := seen[file]; ok {
			t.Errorf("%q and %q share the file %s", name, other, file)
		}
		seen[file] = name
	}
	if got := recordFileName(strings.Repeat("/", driver.MaxName)); len(got) > 255 {
		t.Errorf("a name of slashes makes a file name of %d bytes", len(got))
	}
}

// TestFileNamesDiffer: on no system do two names share a file, be it one that
// does not tell upper from lower case.
func TestFileNamesDiffer(t *testing.T) {
	name := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("aA+%~./ 26f\\")), 1, 6, -1),
		rapid.StringN(1, 300, driver.MaxName),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		fa, fb := recordFileName(a), recordFileName(b)
		if a != b && strings.EqualFold(fa, fb) {
			t.Fatalf("%q and %q share the file %s", a, b, fa)
		}
		for _, c := range []byte(fa) {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.+%~", rune(c)) {
				t.Fatalf("the file %q of %q has the byte %q", fa, a, c)
			}
		}
		if len(fa) > 255 || fa[0] == '.' {
			t.Fatalf("bad file name %q", fa)
		}
	})
}

// TestNamesApart: what looks alike on some disk is not the same lock.
func TestNamesApart(t *testing.T) {
	s := mustOpen(t, t.TempDir()+"/locks")
	names := []string{"a", "A", "a/b", "a%2fb", "a\\b", "..", ".", "../a", "a.", "a ", "con", "CON", "größe", "gro\u0308ße",
		strings.Repeat("x", driver.MaxName), strings.Repeat("x", driver.MaxName-1), strings.Repeat("X", driver.MaxName)}
	for _, name := range names {
		enter(t, s, claim(name), driver.Holding)
	}
	seen := make(map[string]bool)
	for q, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		seen[q.Name] = true
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("%q is not listed", name)
		}
	}
	if len(seen) != len(names) {
		t.Errorf("%d names are listed, want %d", len(seen), len(names))
	}
}
