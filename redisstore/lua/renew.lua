-- KEYS hash, for each claim, on a cluster also each zset, M; ARGV mailbox, then id ttl
-- used mark for each.
-- A ttl of 0 looks and renews nothing. The reply is a line for each: a status, or
-- e and why this claim's name cannot be read, which concerns no other.

-- include stamp
-- include head
-- include machine
-- include frugal

local box, count = ARGV[1], (#ARGV - 1) / 4

-- quick renews a claim that holds where nothing can have run out: then nobody
-- else is concerned. It returns nil if that is not so.
local function quick(key, a)
  local m = redis.call('HMGET', key, 's', ARGV[a])
  if not m[1] or not m[2] then return nil, m[1] end
  local x, n, min = string.match(m[1], '^%d+ (%d+) %l %d+ %d+ (%d+) %d+ %d+ (%d+) ')
  local head, f, u, at, ttl, g, token, tail, mark, to, owner = string.match(m[2],
    '^(%d+ (o?a?%-)) (%d+) (%d+) (%d+) (%d+) (%d+)( %d+ %d+ (%S+)) (%S+) (.*)$')
  if not x or not head or g == '0' or now >= min + 0 or mark ~= ARGV[a + 3] then return nil, m[1] end
  local given, since, spoke = ARGV[a + 1], stamp, ARGV[a + 2]
  if given ~= '0' then
    local ends = now + given
    if ends < at + ttl then -- requests may overtake each other
      ends, since, given = at + ttl, at, ttl
    end
    if ends < min + 0 or ends + 2000000 > x + 0 then return nil, m[1] end
    if spoke ~= '0' then
      local v = math.min(tonumber(spoke), token + SPARE)
      if v > u + 0 then u = num(v) end
    end
    if box ~= '-' then to = box end
    redis.call('HSET', key, ARGV[a], head .. ' ' .. u .. ' ' .. since .. ' ' .. given .. ' ' .. g .. ' '
      .. token .. tail .. ' ' .. to .. ' ' .. owner)
  end
  return 'h ' .. token .. ' ' .. n .. (string.find(f, 'a', 1, true) and ' 1' or ' 0')
end

local lone = redis.call('MGET', unpack(KEYS, 1, count)) -- see state

local function one(key, a)
  local text = lone[key]
  if text then
    lone[key] = nil
    state(key, text)
  end
  local reply, s = quick(key, a)
  if reply then return reply end
  load(key, ARGV[a], s)
  advance()
  local c = owned(id, ARGV[a + 3])
  if c and ARGV[a + 1] ~= '0' then
    renew(c, ARGV[a + 1])
    if c.held then speak(c, ARGV[a + 2]) end
    if box ~= '-' then c.box = box end
    put(c)
    live(c)
  end
  return done(status(c))
end

for i = 1, count do lone[KEYS[i]] = lone[i] end
local out = {}
for i = 1, count do
  local ok, reply = pcall(one, KEYS[i], 4 * i - 2)
  if not ok then
    reply = 'e ' .. string.gsub(type(reply) == 'table' and reply.err or tostring(reply), '%c', ' ')
  end
  out[i] = reply
end
return table.concat(out, '\n')
