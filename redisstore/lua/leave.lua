-- KEYS hash zset; ARGV id used linger doubt
-- doubt is 1 if a request that enters the claim may still be under way.

-- Nobody waits, and nothing can have run out.
if ARGV[3] == '0' and ARGV[4] == '0' then
  local key, m = KEYS[1], redis.call('HMGET', KEYS[1], ARGV[1], 'last', 'used', 'n', 'min', 'x')
  if m[1] and m[4] == '0' then
    local e, u, un, f = string.match(m[1], '^(%d+) (%d+) %d+ %d+ (%d+) %d+ %d+ (%S+) ')
    local alone = m[3] == un
    if e and not string.find(f, 'l', 1, true)
      and (now < tonumber(m[5]) or alone and now < tonumber(e))
      and not (alone and tonumber(m[6]) > now + 720000000) then
      redis.call('HDEL', key, ARGV[1])
      local spoke = math.max(u, ARGV[2])
      if spoke > tonumber(m[2]) then
        redis.call('HSET', key, 'used', m[3] - un, 'last', spoke)
      else
        redis.call('HSET', key, 'used', m[3] - un)
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
  c.linger, c.spoke, c.exp = true, math.max(c.spoke, spoke), now + linger
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
