// Package valkeygo makes a store for pawl of a valkey-go client.
package valkeygo

import (
	"fmt"

	"github.com/valkey-io/valkey-go"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// New makes a store on a client, which stays the caller's: closing the store
// does not close it. o may be nil.
//
// The client talks to one server, also by way of Sentinel, or to a cluster. Where the only
// server of a client turns out to be part of a cluster, the first call is an error that is
// driver.ErrUnsupported. The client's settings decide how
// soon a dead connection is noticed (Dialer.KeepAlive, ConnWriteTimeout). Calls
// end with their context all the same; one that is cancelled in the moment in
// which the server stops replying, up to four seconds later. If a server becomes a
// replica while the client is connected, the client's way to the new primary is
// its own affair (Sentinel).
func New(client valkey.Client, o *redisstore.Options) (*redisstore.Store, error) {
	c, err := NewConn(client)
	if err != nil {
		return nil, err
	}
	return redisstore.New(c, o)
}

// NewConn is the adapter alone, for those who put something between it and
// [redisstore.New].
func NewConn(client valkey.Client) (redisstore.Conn, error) {
	if client == nil {
		return nil, fmt.Errorf("%w valkey client: it is nil", driver.ErrInvalid)
	}
	o := adapter.Options{Cluster: client.Mode() == valkey.ClientModeCluster, ErrClosed: valkey.ErrClosing, Prompt: true}
	return &sharded{adapter.NewTracking(&conn{client}, o), client}, nil
}
