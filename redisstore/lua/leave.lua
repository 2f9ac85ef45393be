-- KEYS hash zset; ARGV id used linger doubt
-- doubt is 1 if a request that enters the claim may still be under way.

local call, key = redis.call, KEYS[1]
local m = call('HMGET', key, 'last', 'x', 's', ARGV[1])

-- It is alone, and has not run out.
if m[4] and ARGV[3] == '0' and ARGV[4] == '0' then
  local units, spoke, at, ttl = string.match(m[4], '^(%d+) o?%- (%d+) (%d+) (%d+) ')
  local after = units and string.find(m[3], ' ' .. units .. ' 0 0 0 0 0  ', 1, true)
  if after and now - at < ttl + 0 then
    call('HDEL', key, ARGV[1])
    local free = string.sub(m[3], 1, after) .. '0 0 0 0 0 0  '
    if spoke == '0' and (ARGV[2] == '0' or ARGV[2] == m[1]) then
      call('HSET', key, 's', free)
    else
      call('HSET', key, 's', free, 'last', math.max(m[1], spoke, ARGV[2]))
    end
    return 'h'
  end
end

-- include machine

load(key, KEYS[2], ARGV[1], m)
advance()
local c = claim(id)
if not c then
  bar()
  return done('g')
end
local was = c.held and 'h' or 'w'
if c.linger then
  -- a repeated leave
elseif ARGV[3] ~= '0' and c.held then
  c.linger, c.flags = true, c.over and 'ol-' or 'l-'
  speak(c, ARGV[2])
  renew(c, ARGV[3])
  put(c)
  live(c)
else
  if c.held then last = math.max(last, ARGV[2], c.spoke) end
  remove(c)
  if ARGV[4] == '1' then bar() end
  grant()
  -- An empty queue need not be kept for as long as its claims could have lived.
  if used + n == 0 and x > now + 720000000 then
    x = math.max(last, now) + 120000000
    call('PEXPIREAT', K, math.ceil(x / 1000))
  end
end
return done(was)
