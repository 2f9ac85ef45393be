package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

const (
	recordSuffix = ".json"
	queueSuffix  = ".queue"
	// maxStem leaves room for the suffix within the 255 bytes that file
	// systems allow.
	maxStem = 200
	keepOf  = 120 // of a longer one, beside its hash
)

func recordFileName(name string) string { return stem(name) + recordSuffix }
func queueFileName(name string) string  { return stem(name) + queueSuffix }

// stem is the file in which name is kept, but for its suffix. No two names share one, also
// where upper and lower case are the same: capitals are written as + and the
// small letter, all other bytes that some system does not take as % and two
// digits, and ~ marks a name cut short, followed by a hash of the whole.
func stem(name string) string {
	var b strings.Builder
	for i, c := range []byte(name) {
		switch {
		case c >= 'A' && c <= 'Z':
			b.WriteByte('+')
			b.WriteByte(c - 'A' + 'a')
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	stem := b.String()
	if isDevice(stem) {
		stem = fmt.Sprintf("%%%02x%s", stem[0], stem[1:])
	}
	if len(stem) > maxStem {
		sum := sha256.Sum256([]byte(name))
		stem = stem[:keepOf] + "~" + hex.EncodeToString(sum[:16])
	}
	return stem
}

// isDevice tells the names that Windows keeps for itself, whatever follows the
// first dot.
func isDevice(stem string) bool {
	stem, _, _ = strings.Cut(stem, ".")
	if slices.Contains([]string{"con", "prn", "aux", "nul"}, stem) {
		return true
	}
	return len(stem) == 4 && (stem[:3] == "com" || stem[:3] == "lpt") && stem[3] >= '0' && stem[3] <= '9'
}

// shards is into how many parts a table is divided; part of the format.
const shards = 32

func shardOf(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % shards)
}
