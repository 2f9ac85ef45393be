-- KEYS hash M; ARGV id mark, then used if not 0, then linger and doubt if one is
-- not 0. doubt is 1 if a request that enters the claim may still be under way.

-- include head

-- It is alone, and has not run out: nobody is left.
local m = redis.call('HMGET', KEYS[1], 's', ARGV[1])
if m[1] and m[2] and not ARGV[4] then
  local last, full = string.match(m[1], '^(%d+) %d+ %l %d+ (%d+) 0 0 %d+ %d+ 0 ')
  local units, spoke, at, ttl, granted, token, mark = string.match(m[2],
    '^(%d+) o?a?%- (%d+) (%d+) (%d+) (%d+) (%d+) %d+ %d+ (%S+) ')
  if last and units == full and granted ~= '0' and mark == ARGV[2] and now - at < ttl + 0 then
    last = math.max(last, spoke, math.min(ARGV[3] or 0, token + SPARE))
    if last <= now then
      redis.call('DEL', KEYS[1])
      redis.call('SET', KEYS[1] .. ':t', num(last), 'PX', 2000)
      return 'h'
    end
  end
end

-- include machine
-- include frugal

local used, linger, doubt = ARGV[3] or '0', ARGV[4] or '0', ARGV[5] or '0'
load(KEYS[1], ARGV[1], m[1])
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
