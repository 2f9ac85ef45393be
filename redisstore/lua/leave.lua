-- KEYS hash zset; ARGV id used linger doubt
-- doubt is 1 if a request that enters the claim may still be under way.

local call, key, id = redis.call, KEYS[1], ARGV[1]
local s = call('HGET', key, 's')

if s and ARGV[3] == '0' and ARGV[4] == '0' then
  -- It is alone, and has not run out.
  local last, x, limit, sole, spoke, at, ttl = string.match(s,
    '^(%d+) (%d+) (%d+) %d+ 0 0 0 0 0  (%S+) %d+ o?%- (%d+) (%d+) (%d+) ')
  if sole == id and now - at < ttl + 0 then
    if spoke ~= '0' or ARGV[2] ~= '0' and ARGV[2] ~= last then
      last = string.format('%.0f', math.max(last, spoke, ARGV[2]))
    end
    s = last .. ' ' .. x .. ' ' .. limit .. ' 0 0 0 0 0 0  '
    local r = redis.pcall('HSET', key, 's', s)
    if type(r) == 'table' then
      -- Short of memory, the server lets a script go on that has removed something.
      call('HDEL', key, id)
      call('HSET', key, 's', s)
    end
    return 'h'
  end

  -- It holds all there is, and so will the first that waits: what the machine
  -- would do, by the shortest way to the next holder.
  local used, n, seq, min, b
  last, x, limit, used, n, seq, min, b = string.match(s,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) 0 (%d+) (%d+) (%d+) %S* $')
  if last and limit == used and n ~= '0' and now < min + 0 then
    local next = call('ZRANGE', KEYS[2], 0, 0)[1]
    local m = next and call('HMGET', key, id, next)
    local units, granted, un, born, tail, box
    if m and m[1] and m[2] then
      units, spoke, granted = string.match(m[1], '^(%d+) o?%- (%d+) %d+ %d+ (%d+) ')
      un, born, tail, box = string.match(m[2], '^(%d+) %- %d+ (%d+ %d+) 0 %d+ (%d+ %d+ (%S+) .*)$')
    end
    if units == limit and un == limit and granted ~= '0' and math.max(last, spoke, ARGV[2]) < now then
      local heard = n == '1' or redis.pcall('PUBSUB', 'NUMSUB', box)
      if heard == true or not heard.err and heard[2] + 0 > 0 then
        local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6))
        call('HDEL', key, id)
        n = n - 1
        call('HSET', key, 's', stamp .. ' ' .. x .. ' ' .. limit .. ' ' .. used .. ' ' .. n .. ' 0 ' .. seq .. ' ' .. min
          .. ' ' .. b .. ' ' .. next .. ' ', next, un .. ' - 0 ' .. born .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. tail)
        call('ZREM', KEYS[2], next)
        redis.pcall('PUBLISH', box, 'g ' .. next .. ' ' .. stamp .. ' ' .. n .. ' 1')
        return 'h'
      end
    end
  end
end

-- include machine

load(key, KEYS[2], ARGV[1], s)
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
  span(c, ARGV[3])
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
