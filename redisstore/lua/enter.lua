-- KEYS hash zset; ARGV id units limit ttl flags mailbox owner
local units, want, ends = tonumber(ARGV[2]), tonumber(ARGV[3]), now + ARGV[4]

-- Nobody waits, nothing can have run out, and it fits.
do
  local key, m = KEYS[1], redis.call('HMGET', KEYS[1], ARGV[1], 'last', 'limit', 'used', 'n', 'seq', 'min', 'x')
  local used, min = tonumber(m[4]) or 0, tonumber(m[7]) or 0
  if not m[1] and (not m[5] or m[5] == '0')
    and (used == 0 or now < min and m[3] == ARGV[3] and used + units <= want) then
    local last, x = math.max((tonumber(m[2]) or 0) + 1, now), tonumber(m[8]) or 0
    local seq = '1'
    if used == 0 then
      min = ends
    else
      min, seq = math.min(min, ends), string.format('%.0f', m[6] + 1)
    end
    local token = string.format('%.0f', last)
    redis.call('HSET', key, 'last', token, 'used', used + units, 'min', min, ARGV[1],
      string.format('%.0f 0 %.0f %s %s %s %.0f %s %s %s', ends, now, token, ARGV[2], seq, now,
        string.find(ARGV[5], 'o', 1, true) and 'o-' or '-', ARGV[6], ARGV[7]))
    local need = math.max(last, ends) + 60000000
    if x < need or m[3] ~= ARGV[3] or m[6] ~= seq then
      if x < need then
        x = need + 60000000
        redis.call('PEXPIREAT', key, math.ceil(x / 1000))
      end
      redis.call('HSET', key, 'limit', ARGV[3], 'n', 0, 'o', 0, 'seq', seq, 'x', x)
    end
    return 'h ' .. token .. ' 0 ' .. (units == want and 1 or 0)
  end
end

-- include machine

load(KEYS[1], KEYS[2], ARGV[1])
advance()
local c = claim(id)
if c then
  if c.linger then return done('g') end -- nobody owns it any more
  c.exp, c.box = ends, ARGV[6]
  put(c)
  live(c)
  return done(status(c))
end
if redis.call('HEXISTS', K, id) == 1 then return done('g') end -- marked by bar
if used + n == 0 then
  seq, min = 0, ends
elseif limit ~= want then
  return done('l ' .. num(limit))
end
local over, queued = string.find(ARGV[5], 'o', 1, true) ~= nil, n > 0
local fits = used + units <= want
if string.find(ARGV[5], 't', 1, true) and not (fits and (over or not queued)) then
  return done('r ' .. stands())
end
limit, seq, dirty = want, seq + 1, true
c = {id = id, exp = ends, spoke = 0, granted = 0, token = 0, units = units, seq = seq, arrived = now,
  over = over, linger = false, box = ARGV[6], owner = ARGV[7]}
if fits and not queued then
  draw(c)
  used = used + units
  put(c)
  live(c)
  return done(status(c))
end
put(c)
live(c)
if not queued then redis.call('DEL', Q) end
redis.call('ZADD', Q, seq, id)
if not queued then redis.call('PEXPIREAT', Q, math.ceil(x / 1000)) end
n = n + 1
if over then o = o + 1 end
grant()
c = claim(id)
if c.granted == 0 and not queued then
  for _, k in ipairs((scan())) do
    if k.granted > 0 then
      h = k.id
      if not k.linger then tell(k, 'w ' .. k.id) end
    end
  end
end
return done(status(c))
