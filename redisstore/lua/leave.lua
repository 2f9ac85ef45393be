-- KEYS hash zset; ARGV id used linger doubt
-- doubt is 1 if a request that enters the claim may still be under way.

-- It is alone, and has not run out.
if ARGV[3] == '0' and ARGV[4] == '0' then
  local call, key, id = redis.call, KEYS[1], ARGV[1]
  local m = call('HMGET', key, 'last', 's', id)
  if m[3] then
    local units, spoke, at, ttl = string.match(m[3], '^(%d+) o?%- (%d+) (%d+) (%d+) ')
    local after = units and string.find(m[2], ' ' .. units .. ' 0 0 0 0 0  ', 1, true)
    if after and now - at < ttl + 0 then
      call('HDEL', key, id)
      local free = string.sub(m[2], 1, after) .. '0 0 0 0 0 0  '
      if spoke == '0' and (ARGV[2] == '0' or ARGV[2] == m[1]) then
        call('HSET', key, 's', free)
      else
        call('HSET', key, 's', free, 'last', math.max(m[1], spoke, ARGV[2]))
      end
      return 'h'
    end
  end
end

-- include machine

load(KEYS[1], KEYS[2], ARGV[1])
advance()
local c = claim(id)
if not c then
  bar()
  return done('g')
end
local was, spoke, linger = c.granted > 0 and 'h' or 'w', tonumber(ARGV[2]), tonumber(ARGV[3])
if c.linger then
  -- a repeated leave
elseif linger > 0 and c.granted > 0 then
  c.linger, c.spoke = true, math.max(c.spoke, spoke)
  renew(c, linger)
  put(c)
  live(c)
else
  if c.granted > 0 then last = math.max(last, spoke, c.spoke) end
  remove(c)
  if ARGV[4] == '1' then bar() end
  grant()
  -- An empty queue need not be kept for as long as its claims could have lived.
  if used + n == 0 and x > now + 720000000 then
    x = math.max(last, now) + 120000000
    redis.call('PEXPIREAT', K, math.ceil(x / 1000))
  end
end
return done(was)
