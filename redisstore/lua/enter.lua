-- KEYS hash; ARGV claim, and try or nothing
-- The claim is the end of a state that begins with h, from the token spoken of on.
-- The reply is a status, or the token alone, if so is the claim.

-- The queue is empty, as it mostly is, or new. Numbers that are texts stay texts
-- here: to print one costs as much as a command. Claims that may live long go
-- the other way, so that leaving lets the keys vanish earlier.
local call, sub, key, text = redis.call, string.sub, KEYS[1], ARGV[1]
local s = call('HGET', key, 's')
local stamp = t[1] .. (#t[2] == 6 and t[2] or sub('00000' .. t[2], -6))
if not s or string.byte(s) == 102 and sub(s, 3, 18) < stamp then -- 102 is f
  local ttl, x = sub(text, 18, 29) + 0, s and sub(s, 20, 29)
  if ttl <= 600000000 and #stamp == 16 then
    local soon = not s or (x - t[1] - 61) * 1000000 < ttl
    if soon then x = string.format('%.0f', t[1] + math.floor(ttl / 1000000) + 120) end
    call('HSET', key, 's', 'h ' .. stamp .. ' ' .. x .. ' ' .. stamp .. ' ' .. text)
    if soon then call('PEXPIREAT', key, x .. '000') end
    return stamp
  end
end

local now = t[1] * 1000000 + t[2]
local ttl, claim, units, want, flags, tail = string.match(text, '^0+ 0*(%d+) (%S+) (%d+) (%d+) (%S+) (.*)$')

-- All is held and others wait already: nothing happens but that one more does.
if s and flags == '-' and not ARGV[2] then
  local last, x, limit, used, n, o, seq, min, b, h = string.match(s,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  local ends = now + ttl
  if limit == want and used == limit and n ~= '0' and now < min + 0
    and ends >= min + 0 and ends + 60000000 <= x + 0 then
    local c = call('HMGET', key, claim, h)
    local granted = c[2] and string.match(c[2], '^%d+ %S+ %d+ %d+ %d+ (%d+) ')
    if not c[1] and granted and granted ~= '0' then
      seq = seq + 1
      call('HSET', key, 's', last .. ' ' .. x .. ' ' .. limit .. ' ' .. used .. ' ' .. n + 1 .. ' ' .. o .. ' ' .. seq .. ' ' .. min .. ' ' .. b
        .. ' ' .. h, claim, units .. ' - 0 ' .. stamp .. ' ' .. ttl .. ' 0 0 ' .. seq .. ' ' .. stamp .. ' ' .. tail)
      call('ZADD', key .. ':q', seq, claim)
      return 'w ' .. n .. ' ' .. stamp .. ' ' .. min .. ' ' .. h .. ' ' .. c[2]
    end
  end
end

-- include machine

units, want = tonumber(units), tonumber(want)
load(key, claim, s)
advance()
local box, owner = string.match(tail, '^(%S+) (.*)$')
local text = id == sole and soletext or call('HGET', K, id)
if text and not marked(text) then
  local c = parse(id, text)
  if c.linger then return done('g') end -- nobody owns it any more
  renew(c, ttl)
  c.box = box
  put(c)
  live(c)
  return done(status(c))
end
if text and string.sub(text, 6) + 0 > now then return done('g') end -- see bar
if used + n == 0 then
  min = now + ttl
elseif limit ~= want then
  return done('l ' .. num(limit))
end
local over, queued = flags == 'o-', n > 0
local fits = used + units <= want
if ARGV[2] and not (fits and (over or not queued)) then
  return done('r ' .. stands())
end
limit, seq, dirty = want, seq + 1, true
local c = {id = id, units = units, flags = flags, spoke = '0', held = false, granted = '0', token = '0',
  seq = seq, arrived = stamp, box = box, owner = owner, over = over, linger = false}
span(c, ttl)
if fits and not queued then
  draw(c)
  used = used + units
  put(c)
  live(c)
  return done(status(c))
end
put(c)
live(c)
call('ZADD', Q, seq, id)
if not queued then call('PEXPIREAT', Q, math.ceil(x / 1000)) end
n = n + 1
if over then o = o + 1 end
grant()
if mine then return done(status(mine)) end
if not queued then
  for _, k in ipairs((scan())) do
    if k.held then
      h = k.id
      if not k.linger then tell(k, 'w ' .. k.id) end
    end
  end
end
return done(status(c, n - 1))
