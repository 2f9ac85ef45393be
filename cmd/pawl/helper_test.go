package main

import (
	"slices"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m, ".") }

type bundle struct{ proctest.Bundle }

func newBundle(t *testing.T) *bundle {
	t.Parallel()
	return bundleOf(t)
}

// bundleOf is newBundle for a test that has one already.
func bundleOf(t *testing.T) *bundle {
	dir := t.TempDir()
	return &bundle{proctest.Bundle{T: t, URL: "file://" + dir + "/store", Dir: dir}}
}

// hold starts a pawl that holds name until it is ended.
func (b *bundle) hold(name string, flags ...string) *proctest.Process {
	b.T.Helper()
	p := b.Start(slices.Concat([]string{"run"}, flags, []string{name, "sh", "-c", "echo ready; while :; do sleep 0.05; done"})...)
	p.Await("ready")
	return p
}

// queue is what show tells of a name.
func (b *bundle) queue(name string) (q queueJSON) {
	b.T.Helper()
	b.Run("show", "--json", name).Want(0).JSON(&q)
	return q
}
