-- A claim is ARGV from a on: id ttl kind units limit flags box owner.

-- vacant reports whether there is a short way for the claim at a into a queue that
-- is not in use, as it mostly is.
local function vacant(key, a)
  local m = call('MGET', M, key .. ':' .. ARGV[a])
  return not m[2] and now > marks(m[1])
end

-- reserve notes in M that the token stamp is drawn; see draw.
local function reserve() call('SET', M, stamp .. ' ' .. stamp) end

-- occupy lets the claim hold the queue, with that token.
local function occupy(key, a)
  local claim, ttl, units, limit = ARGV[a], ARGV[a + 1], ARGV[a + 3], ARGV[a + 4]
  local flags = units == limit and ARGV[a + 5] .. 'a- 0 ' or ARGV[a + 5] .. '- 0 '
  local ends = now + ttl
  call('HSET', key, 's', stamp .. ' ' .. num(ends + 60000000) .. ' ' .. ARGV[a + 2] .. ' ' .. limit .. ' ' .. units .. ' 0 0 1 ' .. num(ends) .. ' 0 ' .. claim,
    claim, units .. ' ' .. flags .. stamp .. ' ' .. ttl .. ' ' .. stamp .. ' ' .. stamp .. ' 1 ' .. stamp .. ' - '
    .. ARGV[a + 6] .. ' ' .. ARGV[a + 7])
  call('PEXPIRE', key, math.ceil(ttl / 1000) + 60000)
end
