-- KEYS hash, on a cluster also the zset, M; ARGV id mark units used

-- include stamp
-- include head
-- include machine
-- include frugal

load(KEYS[1], ARGV[1], state(KEYS[1]))
advance()
local c, units = owned(id, ARGV[2]), tonumber(ARGV[3])
if not c then return done('g') end
if not c.held then return done(status(c)) end
local said = tonumber(ARGV[4])
if said ~= 0 and said < c.token + 0 then return done(status(c)) end -- from before it last grew
if units > c.units and used - c.units + units > limit then
  return done('r ' .. stands())
end
speak(c, ARGV[4])
dirty = true
used = used - c.units + units
if units > c.units then
  last = math.max(last, c.spoke)
  c.units = units
  draw(c)
elseif units < c.units then
  -- An owner that held alone may have used tokens of its own.
  last = math.max(last, bound(c, now))
  c.units, c.alone = units, false
end
put(c)
live(c)
grant()
return done(status(c))
