package redisstore

import "strings"

// Rights returns what an ACL has to let a user do who keeps locks here, and no more, as
// ACL SETUSER takes it: keys, channels and commands. What the client needs for itself
// comes on top, as HELLO, PING and CLIENT; on a cluster also CLUSTER SLOTS and ASKING;
// and INFO, where the server is one of a quorum. o may be nil.
func Rights(o *Options, cluster bool) []string {
	prefix := "pawl"
	if o != nil && o.Prefix != "" {
		prefix = o.Prefix
	}
	all := []string{"~" + prefix + ":*", "&" + prefix + ":mailbox:*"}
	for c := range strings.FieldsSeq(commands) {
		all = append(all, "+"+c)
	}
	if o != nil && o.Replicas > 0 {
		all = append(all, "+wait")
	}
	if cluster {
		all = append(all, "+spublish", "+ssubscribe", "+sunsubscribe")
	}
	return all
}

const commands = `evalsha eval time get mget set del hmget hget hgetall hset hdel hlen exists hrandfield
	zadd zrem zrange zrank zcard pexpire pexpireat pttl persist sadd sismember smembers publish subscribe pubsub scan`
