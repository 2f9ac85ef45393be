-- KEYS hash; ARGV id, then used if not 0, then linger and doubt if one is not 0
-- doubt is 1 if a request that enters the claim may still be under way.
local call, sub, byte, key, claim, spoken = redis.call, string.sub, string.byte, KEYS[1], ARGV[1], ARGV[2]
local s = call('HGET', key, 's')
local now = t[1] * 1000000 + t[2]

-- It is alone, and has not run out. An id with a blank (32) after it is in no
-- other state than h.
if s and not ARGV[3] and sub(s, 78, 77 + #claim) == claim and byte(s, 78 + #claim) == 32
  and now - sub(s, 31, 46) < sub(s, 65, 76) + 0 then
  local last = sub(s, 3, 18)
  if byte(s, 48) ~= 48 and last < sub(s, 48, 63) then last = sub(s, 48, 63) end -- not 0
  if spoken and #spoken == 16 and last < spoken then last = spoken end
  if not spoken or #spoken <= 16 then
    local free = 'f ' .. last .. sub(s, 19, 29)
    if redis.pcall('HSET', key, 's', free) ~= 0 then
      -- Short of memory, the server lets a script go on that has removed something.
      call('HDEL', key, claim)
      call('HSET', key, 's', free)
    end
    return 'h'
  end
end

spoken = spoken or '0'
local linger, doubt = ARGV[3] or '0', ARGV[4] or '0'
if s and linger == '0' and doubt == '0' then
  -- It holds all there is, and so will the first that waits: what the machine
  -- would do, by the shortest way to the next holder.
  local last, x, limit, full, n, seq, min, b, d = string.match(s,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) 0 (%d+) (%d+) (%d+) (%d+) %S*$')
  if last and limit == full and n ~= '0' and now < min + 0 then
    local next = call('ZRANGE', key .. ':q', 0, 0)[1]
    local m = next and call('HMGET', key, claim, next)
    local units, spoke, granted, un, born, tail, box
    if m and m[1] and m[2] then
      units, spoke, granted = string.match(m[1], '^(%d+) o?a?%- (%d+) %d+ %d+ (%d+) ')
      un, born, tail, box = string.match(m[2], '^(%d+) %- %d+ (%d+ %d+) 0 %d+ (%d+ %d+ (%S+) .*)$')
    end
    if units == limit and un == limit and granted ~= '0' and math.max(last, spoke, spoken) < now then
      local heard = n == '1' or redis.pcall('PUBSUB', 'NUMSUB', box)
      if heard == true or not heard.err and heard[2] + 0 > 0 then
        local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6))
        call('HDEL', key, claim)
        n = n - 1
        call('HSET', key, 's', stamp .. ' ' .. x .. ' ' .. limit .. ' ' .. full .. ' ' .. n .. ' 0 ' .. seq .. ' ' .. min
          .. ' ' .. b .. ' ' .. d .. ' ' .. next, next, un .. ' a- 0 ' .. born .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. tail)
        call('ZREM', key .. ':q', next)
        redis.pcall('PUBLISH', box, 'g ' .. next .. ' ' .. stamp .. ' ' .. n .. ' 1')
        return 'h'
      end
    end
  end
end

-- include machine

load(key, claim, s)
advance()
local c = find(id)
if not c then
  bar()
  return done('g')
end
local was = c.held and 'h' or 'w'
if c.linger then
  -- a repeated leave
elseif linger ~= '0' and c.held then
  c.linger = true
  speak(c, spoken)
  span(c, linger)
  put(c)
  live(c)
else
  if c.held then last = math.max(last, spoken, c.spoke) end
  remove(c)
  if doubt == '1' then bar() end
  grant()
  -- An empty queue need not be kept for as long as its claims could have lived.
  if used + n + d == 0 and x > now + 720000000 then
    x = math.floor(math.max(last, now) / 1000000 + 120) * 1000000
    call('PEXPIREAT', K, math.ceil(x / 1000))
  end
end
return done(was)
