-- KEYS hash

local now = t[1] * 1000000 + t[2]

-- include machine

load(KEYS[1], '', redis.call('HGET', KEYS[1], 's'))
advance()
if used > 0 then
  local changed = dirty
  want()
  dirty = changed -- want has found nothing that advance had not
end
return done('o')
