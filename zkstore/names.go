package zkstore

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// escape turns a name into the name of a node: letters, digits and - _ . : @ as
// they are, every other byte as %XX, and the dots of "." and "..", which mean
// something else in a path. No two names become one.
func escape(name string) string {
	if name == "." || name == ".." {
		return strings.Repeat("%2E", len(name))
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("-_.:@", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape is the inverse; false for what escape never returns.
func unescape(node string) (string, bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && driver.CheckName(name) == nil && escape(name) == node
}

// checkRoot returns what is wrong with the path under which a store keeps its
// nodes.
func checkRoot(root string) error {
	if !strings.HasPrefix(root, "/") || strings.HasSuffix(root, "/") {
		return fmt.Errorf("%w root %q: it is a path like /pawl", driver.ErrInvalid, root)
	}
	for part := range strings.SplitSeq(root[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%w root %q: it has a part %q", driver.ErrInvalid, root, part)
		}
		for _, r := range part {
			if r < ' ' || r == 0x7f || r > 0x7e && r < 0xa0 || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
				return fmt.Errorf("%w root %q: ZooKeeper does not allow %q", driver.ErrInvalid, root, r)
			}
		}
	}
	if root == "/zookeeper" || strings.HasPrefix(root, "/zookeeper/") {
		return fmt.Errorf("%w root %q: ZooKeeper keeps /zookeeper for itself", driver.ErrInvalid, root)
	}
	return nil
}
