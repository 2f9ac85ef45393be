-- Short of memory, the server refuses what may need more of it, unless the script
-- has written before. What follows needs next to nothing, so it begins by writing
-- nothing: M never expires.
redis.call('PERSIST', M)
