-- KEYS hash, on a cluster also the zset, M

-- include stamp
-- include head
-- include machine
-- include frugal

load(KEYS[1], '', state(KEYS[1]))
advance()
if used > 0 then want() end
return done('o')
