-- KEYS hash; ARGV claim, and try or nothing
-- The claim is the end of a state that begins with h, from the token spoken of on.
-- The reply is a status, or the token alone, if so is the claim.

-- include vacant

local key, text = KEYS[1], ARGV[1]
local s = call('HGET', key, 's')
if vacant(s, text) then
  occupy(key, s, text)
  return stamp
end

local now = t[1] * 1000000 + t[2]

-- All is held and others wait already: nothing happens but that one more does.
if s and not ARGV[2] then
  local ttl, claim, units, asked, flags, tail = string.match(text, '^0+ 0*(%d+) (%S+) (%d+) (%d+) (%S+) (.*)$')
  local last, x, limit, used, n, o, seq, min, b, d, h = string.match(s,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  local ends = now + ttl
  if flags == '-' and limit and (limit == asked or d == asked and units + 0 <= limit + 0) and used == limit and n ~= '0'
    and now < min + 0 and ends >= min + 0 and ends + 60000000 <= x + 0 then
    local c = call('HMGET', key, claim, h)
    local granted = c[2] and string.match(c[2], '^%d+ %S+ %d+ %d+ %d+ (%d+) ')
    if not c[1] and granted and granted ~= '0' then
      seq = seq + 1
      call('HSET', key, 's', last .. ' ' .. x .. ' ' .. limit .. ' ' .. used .. ' ' .. n + 1 .. ' ' .. o .. ' ' .. seq .. ' ' .. min .. ' ' .. b
        .. ' ' .. d .. ' ' .. h, claim, units .. ' - 0 ' .. stamp .. ' ' .. ttl .. ' 0 0 ' .. seq .. ' ' .. stamp .. ' ' .. tail)
      call('ZADD', key .. ':q', seq, claim)
      return 'w ' .. n .. ' ' .. stamp .. ' ' .. min .. ' ' .. h .. ' ' .. c[2]
    end
  end
end

-- include machine
-- include entering

local c = read(text)
load(key, c.id, s)
advance()
local reply = again(c) or misfit(c)
if not reply and ARGV[2] and not fits(c) then reply = 'r ' .. stands() end
return done(reply or admit(c))
