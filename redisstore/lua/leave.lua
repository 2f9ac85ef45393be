-- KEYS hash zset; ARGV id used linger doubt
-- doubt is 1 if a request that enters the claim may still be under way.

local call, key = redis.call, KEYS[1]
local m = call('HMGET', key, 'last', 'x', 's', ARGV[1])

if m[4] and ARGV[3] == '0' and ARGV[4] == '0' then
  local id = ARGV[1]
  local units, spoke, at, ttl, granted = string.match(m[4], '^(%d+) o?%- (%d+) (%d+) (%d+) (%d+) ')
  local live = units and granted ~= '0' and now - at < ttl + 0
  local after = live and string.find(m[3], ' ' .. units .. ' 0 0 0 0 0  ', 1, true)

  -- It is alone.
  if after then
    call('HDEL', key, id)
    local free = string.sub(m[3], 1, after) .. '0 0 0 0 0 0  '
    if spoke == '0' and (ARGV[2] == '0' or ARGV[2] == m[1]) then
      call('HSET', key, 's', free)
    else
      call('HSET', key, 's', free, 'last', math.max(m[1], spoke, ARGV[2]))
    end
    return 'h'
  end

  -- It holds all there is, and so will the first that waits: what the machine
  -- would do, by the shortest way to the next holder.
  local limit, used, n, seq, min, b = string.match(m[3], '^(%d+) (%d+) (%d+) 0 (%d+) (%d+) (%d+) ')
  if live and limit == units and used == units and n ~= '0' and now < min + 0 then
    local last = math.max(m[1], spoke, ARGV[2])
    local next = call('ZRANGE', KEYS[2], 0, 0)[1]
    local text = next and call('HGET', key, next)
    local un, born, tail, box
    if text and last < now then
      un, born, tail, box = string.match(text, '^(%d+) %- %d+ (%d+ %d+) 0 %d+ (%d+ %d+ (%S+) .*)$')
    end
    if un == units then
      local heard = n == '1' or redis.pcall('PUBSUB', 'NUMSUB', box)
      if heard == true or not heard.err and heard[2] + 0 > 0 then
        local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6))
        call('HDEL', key, id)
        n = n - 1
        call('HSET', key, 'last', stamp, 's', limit .. ' ' .. used .. ' ' .. n .. ' 0 ' .. seq .. ' ' .. min .. ' ' .. b
          .. ' ' .. next .. ' ', next, un .. ' - 0 ' .. born .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. tail)
        call('ZREM', KEYS[2], next)
        redis.pcall('PUBLISH', box, 'g ' .. next .. ' ' .. stamp .. ' ' .. n .. ' 1')
        return 'h'
      end
    end
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
