-- A claim is ARGV from a on: id ttl kind units limit flags box owner.

-- occupy is the short way into a queue that is not in use, as it mostly is: the
-- claim at a holds it, with the token stamp. It returns nil, and has changed
-- nothing of the queue, if that way is not open.
local function vacant(key, a)
  local m = redis.call('MGET', M, key .. ':t', key .. ':' .. ARGV[a])
  local top, last = height(m[1]), tonumber(m[2] or 0)
  if m[3] or not last or last >= now or top - now > BACK then return false end
  if now + SPARE >= top then redis.call('SET', M, num(now + AHEAD)) end -- see draw
  return true
end

local function occupy(key, a)
  local ttl, units, limit = ARGV[a + 1], ARGV[a + 3], ARGV[a + 4]
  local flags, ends = ARGV[a + 5], now + ttl
  if units == limit then flags = flags .. 'a' end
  redis.call('HSET', key, 's', stamp .. ' ' .. num(ends + 60000000) .. ' ' .. ARGV[a + 2] .. ' ' .. limit .. ' ' .. units
    .. ' 0 0 1 ' .. num(ends) .. ' 0 ' .. ARGV[a], ARGV[a],
    units .. ' ' .. flags .. '- 0 ' .. stamp .. ' ' .. ttl .. ' ' .. stamp .. ' ' .. stamp .. ' 1 ' .. stamp .. ' - '
    .. ARGV[a + 6] .. ' ' .. ARGV[a + 7])
  redis.call('PEXPIRE', key, math.ceil(ttl / 1000) + 60000)
end
