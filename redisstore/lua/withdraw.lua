-- KEYS hash M; ARGV id token, which is 0 for a claim that waits
-- The reply is the state that the claim has then.

-- include stamp
-- include head
-- include machine
-- include frugal

load(KEYS[1], ARGV[1], state(KEYS[1]))
advance()
local c = owned(id, '-')
if not c then return done('g') end
if c.token ~= ARGV[2] then return done(c.held and 'h' or 'w') end -- while it waits it has none
remove(c)
grant()
return done('g')
