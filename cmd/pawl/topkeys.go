package main

import (
	"strings"
	"unicode/utf8"
)

// key is what a user has typed: a text of one rune, or one of these.
type key string

const (
	keyUp        key = "up"
	keyDown      key = "down"
	keyPageUp    key = "page up"
	keyPageDown  key = "page down"
	keyHome      key = "home"
	keyEnd       key = "end"
	keyEnter     key = "enter"
	keyEscape    key = "escape"
	keyBackspace key = "backspace"
	keyInterrupt key = "interrupt" // Ctrl-C
	keyQuit      key = "quit"      // Ctrl-\
	keySuspend   key = "suspend"   // Ctrl-Z
	keyRedraw    key = "redraw"    // Ctrl-L
)

// sequences are what terminals send for keys that are no character.
var sequences = map[string]key{
	"[A": keyUp, "OA": keyUp, "[B": keyDown, "OB": keyDown, "[5~": keyPageUp, "[6~": keyPageDown,
	"[H": keyHome, "OH": keyHome, "[1~": keyHome, "[F": keyEnd, "OF": keyEnd, "[4~": keyEnd,
}

var controls = map[byte]key{
	'\r': keyEnter, '\n': keyEnter, 0x7f: keyBackspace, 0x08: keyBackspace,
	0x03: keyInterrupt, 0x1c: keyQuit, 0x1a: keySuspend, 0x0c: keyRedraw,
}

// decoder makes keys of bytes, in whatever parts they come.
type decoder struct{ pending []byte }

// feed returns the keys that are complete.
func (d *decoder) feed(b []byte) (keys []key) {
	d.pending = append(d.pending, b...)
	for len(d.pending) > 0 {
		k, n := next(d.pending)
		if n == 0 {
			break
		}
		d.pending = d.pending[n:]
		if k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// flush is called when nothing has come for a while: an escape was the key of that name.
func (d *decoder) flush() []key {
	if len(d.pending) == 0 {
		return nil
	}
	alone := len(d.pending) == 1 && d.pending[0] == 0x1b
	if d.pending = nil; alone {
		return []key{keyEscape}
	}
	return nil
}

// next returns the first key of b and how many bytes it has, 0 if more must come. A key
// that is nothing here is empty.
func next(b []byte) (key, int) {
	switch {
	case b[0] == 0x1b:
		return sequence(b)
	case controls[b[0]] != "":
		return controls[b[0]], 1
	case b[0] < ' ':
		return "", 1
	case !utf8.FullRune(b):
		return "", 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError {
		return "", n
	}
	return key(b[:n]), n
}

// sequence reads an escape sequence to its end, also one that is nothing here.
func sequence(b []byte) (key, int) {
	if len(b) == 1 {
		return "", 0
	}
	if b[1] != '[' && b[1] != 'O' {
		return keyEscape, 1
	}
	for i := 2; i < len(b); i++ {
		if c := b[i]; c < ' ' || c > '~' {
			return "", i // broken off
		} else if !strings.ContainsRune("0123456789;:<=>?", rune(c)) {
			return sequences[string(b[1:i+1])], i + 1
		}
	}
	return "", 0
}
