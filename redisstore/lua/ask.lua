-- KEYS hash M

-- include head
-- include machine
-- include frugal

load(KEYS[1], '', redis.call('HGET', KEYS[1], 's'))
advance()
if used > 0 then want() end
return done('o')
