-- KEYS hash, on a cluster also the zset, M; ARGV kind was limit

-- include stamp
-- include head
-- include machine
-- include frugal

local was, new = tonumber(ARGV[2]), tonumber(ARGV[3])
load(KEYS[1], '', state(KEYS[1]))
advance()
if used + n + d == 0 then
  if was == new then return done('o') end
  kind, limit = ARGV[1], was
end
if ARGV[1] ~= kind or was ~= limit and was ~= d then return done('l ' .. num(limit) .. ' 0 ' .. kind) end
local ends = now
for _, k in ipairs((scan())) do
  ends = math.max(ends, k.exp)
  -- Others may be granted beside it while it uses its spare tokens.
  local c = parse(k.id, k.text)
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
  if n > 0 then redis.call('PERSIST', Q) end
end
grant()
return done('o')
