-- KEYS hash, on a cluster also the zset and the bar, M; ARGV id mark, then used if not 0,
-- then linger and doubt if one is not 0. doubt is 1 if a request that enters the claim may still be under way.

local call, sub, key, claim = redis.call, string.sub, KEYS[1], ARGV[1]
local m = call('MGET', key, KEYS[#KEYS])
local text = m[1]
if text and not ARGV[4] and ARGV[2] == '-' and sub(text, 31, 30 + #claim) == claim and string.byte(text, 31 + #claim) == 32
  and (not ARGV[3] or ARGV[3] == sub(text, 1, 16)) and call('PTTL', key) > 60001 then
  -- It has the queue alone, has used no token but its own, and has not run out: it does so
  -- a minute before its key, rounded up (claimArgs), and PTTL is cheaper than TIME.
  call('DEL', key)
  return 'h'
end

-- include clock
-- include stamp
-- include head

local s, id, mine
if text then
  s, id, mine = unfold(text)
  mine = id == claim and mine
else
  local found = call('HMGET', key, 's', claim)
  s, mine = found[1], found[2]
end
if s and mine and not ARGV[4] then
  local last, full, n, d = match(s, '^(%d+) %d+ %l %d+ (%d+) (%d+) 0 %d+ %d+ (%d+) ')
  local units, spoke, at, ttl, granted, token, mark = match(mine, '^(%d+) o?a?%- (%d+) (%d+) (%d+) (%d+) (%d+) %d+ %d+ (%S+) ')
  if last and units == full and granted ~= '0' and mark == ARGV[2] and now - at < ttl + 0 then
    local high = math.max(last, spoke, ARGV[3] and math.min(ARGV[3], token + SPARE) or 0)
    if n == '0' and d == '0' then
      -- It is alone, and has not run out: nobody is left.
      call('DEL', key)
      if high > token + 0 then -- else M knows, as of every token that was drawn
        local top, timely = marks(m[2])
        if high > top then call('SET', M, num(high) .. ' ' .. num(timely)) end
      end
      return 'h'
    end
    local x, kind, limit, seq, min = match(s, '^%d+ (%d+) (%l) (%d+) %d+ %d+ 0 (%d+) (%d+) ')
    if n ~= '0' and full == limit and high < now and now < min + 0 then
      -- It holds all there is, and so will the first that waits: what the machine
      -- would do, by the shortest way to the next holder.
      local next = call('ZRANGE', key .. ':q', 0, 0)[1]
      local un, born, tail, box = match(next and call('HGET', key, next) or '', '^(%d+) %- %d+ (%d+ %d+) 0 0 (%d+ %d+ %S+ (%S+) .*)$')
      if un == limit and ahead(m[2]) then
        if n == '1' or heard(box) then
          n = n - 1
          call('HDEL', key, claim) -- first: see frugal
          call('SET', M, stamp .. ' ' .. stamp)
          call('HSET', key, 's', stamp .. ' ' .. x .. ' ' .. kind .. ' ' .. limit .. ' ' .. full .. ' ' .. n .. ' 0 ' .. seq .. ' ' .. min
            .. ' ' .. d .. ' ' .. next, next, un .. ' a- 0 ' .. born .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. tail)
          call('ZREM', key .. ':q', next)
          publish(box, 'g ' .. next .. ' ' .. stamp .. ' ' .. n .. ' 1')
          return 'h'
        end
      end
    end
  end
end

-- include machine
-- include frugal

local used, linger, doubt = ARGV[3] or '0', ARGV[4] or '0', ARGV[5] or '0'
load(key, claim, text and state(key, text) or s)
advance()
local c = find(id)
if not c then
  bar()
  return done('g')
end
if c.mark ~= ARGV[2] then return done('g') end
local was = c.held and 'h' or 'w'
if c.linger then
  -- a repeated leave
elseif linger ~= '0' and c.held then
  c.linger = true
  speak(c, used)
  span(c, linger)
  put(c)
  live(c)
else
  if c.held then
    speak(c, used)
    last = math.max(last, c.spoke)
  end
  remove(c)
  if doubt == '1' then bar() end
  grant()
end
return done(was)
