-- KEYS hash zset; ARGV id units limit ttl flags tail, and try or nothing
-- flags and tail (mailbox and owner) are as in the claim's text.

-- The queue is empty, as it mostly is, or new. Numbers that are texts stay texts
-- here: to print one costs as much as a command. Claims that may live long go
-- the other way, so that leaving lets the keys vanish earlier.
local call, key, units, ttl = redis.call, KEYS[1], ARGV[2], ARGV[4]
local s = call('HGET', key, 's')
local last, x, rest = 0, 0
if s then last, x, rest = string.match(s, '^(%d+) (%d+) (.*)$') end
if (not s or rest == ARGV[3] .. ' 0 0 0 0 0 0  ') and last + 0 < now and ttl + 0 <= 600000000 then
  local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6))
  local ends = x
  if x - ttl - 60000000 < now then ends = string.format('%.0f', now + ttl + 120000000) end
  call('HSET', key, 's', stamp .. ' ' .. ends .. ' ' .. ARGV[3] .. ' ' .. units .. ' 0 0 0 0 0  ' .. ARGV[1] .. ' '
    .. units .. ' ' .. ARGV[5] .. ' 0 ' .. stamp .. ' ' .. ttl .. ' ' .. stamp .. ' ' .. stamp .. ' 0 ' .. stamp .. ' ' .. ARGV[6])
  if ends ~= x then call('PEXPIREAT', key, math.ceil(ends / 1000)) end
  return 'h ' .. stamp .. (units == ARGV[3] and ' 0 1' or ' 0 0')
end

-- All is held and others wait already: nothing happens but that one more does.
if rest and ARGV[5] == '-' and not ARGV[7] then
  local limit, used, n, o, seq, min, b, h = string.match(rest, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*) $')
  local ends = now + ttl
  if limit == ARGV[3] and used == limit and n ~= '0' and h ~= '' and now < min + 0
    and ends >= min + 0 and ends + 60000000 <= x + 0 then
    local c = call('HMGET', key, ARGV[1], h)
    local granted = c[2] and string.match(c[2], '^%d+ %S+ %d+ %d+ %d+ (%d+) ')
    if not c[1] and granted and granted ~= '0' then
      local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6))
      seq = seq + 1
      call('HSET', key, 's', last .. ' ' .. x .. ' ' .. limit .. ' ' .. used .. ' ' .. n + 1 .. ' ' .. o .. ' ' .. seq .. ' ' .. min .. ' ' .. b
        .. ' ' .. h .. ' ', ARGV[1], units .. ' - 0 ' .. stamp .. ' ' .. ttl .. ' 0 0 ' .. seq .. ' ' .. stamp .. ' ' .. ARGV[6])
      call('ZADD', KEYS[2], seq, ARGV[1])
      return 'w ' .. n .. ' ' .. stamp .. ' ' .. min .. ' ' .. h .. ' ' .. c[2]
    end
  end
end

-- include machine

local want
units, want = tonumber(units), tonumber(ARGV[3])
load(key, KEYS[2], ARGV[1], s)
advance()
local box, owner = string.match(ARGV[6], '^(%S+) (.*)$')
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
local over, queued = ARGV[5] == 'o-', n > 0
local fits = used + units <= want
if ARGV[7] and not (fits and (over or not queued)) then
  return done('r ' .. stands())
end
limit, seq, dirty = want, seq + 1, true
local c = {id = id, units = units, flags = ARGV[5], spoke = '0', held = false, granted = '0', token = '0',
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
