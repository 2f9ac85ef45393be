-- KEYS hash; ARGV was, limit: numbers as texts

local now = t[1] * 1000000 + t[2]

-- include machine

local was, new = tonumber(ARGV[1]), tonumber(ARGV[2])
load(KEYS[1], '', redis.call('HGET', KEYS[1], 's'))
advance()
if used + n + d == 0 then
  if was == new then return done('o') end
  limit = was
end
if was ~= limit and was ~= d then return done('l ' .. num(limit)) end
local ends = now
for _, c in ipairs((scan())) do
  ends = math.max(ends, c.exp)
  -- Others may be granted beside it while it uses its spare tokens.
  if c.alone then last = math.max(last, c.token + SPARE) end
end
if d == 0 then d = limit end
limit, dirty = new, true
if d == new then
  d, x = 0, 0
  keep(ends)
else
  x = NEVER
  redis.call('PERSIST', K)
  if n > 0 then redis.call('PEXPIREAT', Q, x / 1000) end
end
grant()
return done('o')
