-- KEYS hash, on a cluster also the zset and the bar, M; ARGV claim, and try or nothing
-- A claim is its id; for how many ms its keys are kept; and text: ttl, of 12
-- digits, id kind units limit flags box owner.
-- The reply is a status, or the token alone, if so is the claim; or f, if there
-- is no room for it.

-- include stamp

-- The queue is not in use, mostly. A number that was text stays text: to print it
-- takes as long as a command.
local m = call('MGET', KEYS[1], M, KEYS[1] .. ':' .. ARGV[1])
local s = not m[1] and call('HGET', KEYS[1], 's')
if not m[1] and not s and not m[3] and ahead(m[2]) then
  call('SET', KEYS[1], stamp .. ' ' .. ARGV[3], 'PX', ARGV[2])
  call('SET', M, stamp .. ' ' .. stamp) -- see draw
  return stamp
end

-- include share

share(KEYS[1], 1, m[1])

-- include head

local first, last, x, as, n, o, seq, min, rest, h = match(s or '', '^((%d+) (%d+) (%l %d+ %d+)) ([1-9]%d*) (%d+) (%d+) (%d+)( %d+ (%S+))$')
if first and not m[3] and not ARGV[4] and now < min + 0 then
  local ttl, kind, units, asked, tail = match(ARGV[3], '^0*(%d+) %S+ (%l) (%d+) (%d+) a?%- (.*)$')
  local ends = now + (ttl or 0)
  if ttl and as == kind .. ' ' .. asked .. ' ' .. asked and asked + n < CROWD
    and ends >= min + 0 and ends + 2000000 <= x + 0 and call('ZCARD', KEYS[1] .. ':q') == n + 0 then
    -- All is held, and others wait: nothing happens but that one more does.
    local c = call('HMGET', KEYS[1], ARGV[1], h)
    local granted = c[2] and match(c[2], '^%d+ %S+ %d+ %d+ %d+ (%d+) ')
    if not c[1] and granted and granted ~= '0' then
      seq = seq + 1
      call('HSET', KEYS[1], 's', first .. ' ' .. n + 1 .. ' ' .. o .. ' ' .. seq .. ' ' .. min .. rest,
        ARGV[1], units .. ' - 0 ' .. stamp .. ' ' .. ttl .. ' 0 0 ' .. seq .. ' ' .. stamp .. ' - ' .. tail)
      call('ZADD', KEYS[1] .. ':q', seq, ARGV[1])
      return 'w ' .. n .. ' ' .. last .. ' ' .. stamp .. ' ' .. (n + 0 < FRONT and min or '0') .. ' ' .. h .. ' ' .. c[2]
    end
  end
end

-- include machine
-- include admitting

local c = read(1)
load(KEYS[1], c.id, m[1] and state(KEYS[1], m[1]) or s)
advance()
local reply = again(c) or misfit(c)
if not reply and ARGV[4] and not fits(c) then reply = 'r ' .. stands() end
return done(reply or crowded() and 'f' or admit(c))
