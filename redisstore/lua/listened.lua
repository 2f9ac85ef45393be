-- KEYS one of the slot of a mailbox; ARGV the mailbox. The reply is n if nobody listens to it at
-- this server, which is the slot's primary.
local r = redis.pcall('PUBSUB', 'SHARDNUMSUB', ARGV[1])
return not r.err and tonumber(r[2]) == 0 and 'n' or 'y'
