package etcdstore

import (
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// keys makes the keys under a prefix.
type keys struct{ prefix string }

// Escaping goes byte by byte, so names that begin alike do so escaped as well,
// and the only slashes in a key are those that are put there here.
var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/")
)

// queues begins the keys of all queues whose names have that prefix.
func (k keys) queues(prefix string) string { return k.prefix + "/q/" + escaper.Replace(prefix) }

// queue begins all keys of a name: those of the claims, and its limit.
func (k keys) queue(name string) string { return k.queues(name) + "/" }

// sort says what claims of a queue have in common: its keys differ in that before
// they do in anything else.
type sort struct {
	kind  driver.Kind
	limit int64
}

// sorted begins the keys of a name's claims of that sort.
func (k keys) sorted(name string, of sort) string {
	return k.queue(name) + string(rune(of.kind)) + strconv.FormatInt(of.limit, 10) + "/"
}

// claim is the key of a claim; see slots.
func (k keys) claim(name string, of sort, slot string) string { return k.sorted(name, of) + slot }

// limit is the key of the limit that SetLimit has put in force; it is greater
// than those of the claims.
func (k keys) limit(name string) string { return k.queue(name) + "~" }

func (k keys) mailbox(store string) string { return k.prefix + "/m/" + store + "/" }

// mail is the key of the mail about the claim with that key.
func (k keys) mail(store, claim string) string {
	return k.mailbox(store) + strings.TrimPrefix(claim, k.prefix+"/q/")
}

// discard deletes mail that was read as of a revision, unless there is news since:
// the claim that it is about may be another by now.
func (k keys) discard(mail string, revision int64) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(mail), "<", revision+1)},
		[]clientv3.Op{clientv3.OpDelete(mail)}, nil)
}

func (k keys) bar(l clientv3.LeaseID) string {
	return k.prefix + "/b/" + strconv.FormatInt(int64(l), 16)
}

func (k keys) record(name string) string { return k.prefix + "/r/" + escaper.Replace(name) }

func (k keys) epoch() string { return k.prefix + "/epoch" }

// nameOf returns the name in the key of a queue.
func (k keys) nameOf(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, k.prefix+"/q/")
	esc, _, found := strings.Cut(rest, "/")
	return unescaper.Replace(esc), ok && found
}

// sortOf returns the sort in the key of a claim of name.
func (k keys) sortOf(name, key string) (of sort, ok bool) {
	part, _, ok := strings.Cut(strings.TrimPrefix(key, k.queue(name)), "/")
	if !ok || part == "" {
		return of, false
	}
	limit, err := strconv.ParseInt(part[1:], 10, 64)
	of = sort{driver.Kind(part[0]), limit}
	return of, err == nil && of.kind.Check() == nil && driver.CheckLimit(limit) == nil
}

// ofQueue reads all keys of a name.
func (k keys) ofQueue(name string) clientv3.Op {
	return clientv3.OpGet(k.queue(name), clientv3.WithPrefix())
}

// free holds if the name has neither claims nor a limit that was set.
func (k keys) free(name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(k.queue(name)), "=", 0).WithPrefix()
}

// alike holds if the name has no claims of another sort, and no limit was set.
func (k keys) alike(name string, of sort) []clientv3.Cmp {
	all, mine := k.queue(name), k.sorted(name, of)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(all), "=", 0).WithRange(mine),
		clientv3.Compare(clientv3.CreateRevision(clientv3.GetPrefixRangeEnd(mine)), "=", 0).WithRange(clientv3.GetPrefixRangeEnd(all)),
	}
}

// unchanged holds if nothing was put under the name after that revision:
// claims may have gone since, but none has come, and none has changed.
func (k keys) unchanged(name string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(k.queue(name)), "<", revision+1).WithPrefix()
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}
