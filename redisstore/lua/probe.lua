-- KEYS one of any slot; ARGV a mailbox of another. The reply is o if scripts may tell it, or
-- why not.
local r = redis.pcall('PUBLISH', ARGV[1], 't')
return type(r) == 'table' and r.err or 'o'
