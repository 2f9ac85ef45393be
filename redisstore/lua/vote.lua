-- KEYS hash memory M; ARGV claim, as in enter.lua, epoch floor token, and try or nothing.
-- The claim is not marked as having been granted all units: votes have no spare tokens, for
-- they may be ahead of the clock, by which those are counted.
-- The reply is a status; or e EPOCH, if the memory is another, or a hyphen if there is none.

-- include stamp
-- include remembered

-- The memory is looked at first: without it nothing is changed.
local m = call('MGET', KEYS[1], KEYS[2], M, KEYS[1] .. ':' .. ARGV[1]) -- the last is that of bar
local epoch, mark = remembered(m[2])
if epoch ~= ARGV[4] then return 'e ' .. (epoch or '-') end

-- include head

-- The queue is not in use, mostly. Then the claim is alone there, as by enter; but its token,
-- which stands for its time, may be ahead of the clock: then it lives that much less long.
do
  local high, timely = marks(m[3])
  local ttl = tonumber(string.sub(ARGV[3], 1, 12))
  local token = math.max(now > high and now or math.max(high, timely + SPARE) + 1, ARGV[5], mark + 1) -- as draw does
  if not m[1] and m[3] and not m[4] and ARGV[6] == '0' and token - now < ttl and #num(token) == 16 then
    local text = num(token) .. string.format(' %012.0f', ttl - (token - now)) .. string.sub(ARGV[3], 13)
    local set = redis.pcall('SET', KEYS[1], text, 'PX', ARGV[2], 'NX') -- it may be a hash
    if set and not set.err then
      call('SET', M, num(token) .. ' ' .. num(timely))
      return 'h ' .. num(token) .. ' 0 0'
    end
  end
end

-- include share

share(KEYS[1], 1, m[1])

-- include machine
-- include admitting

know()
local c = read(1)
load(KEYS[1], c.id, state(KEYS[1], m[1]))
least = math.max(ARGV[5], mark + 1)
back = true -- no spare tokens
advance()

-- Invariant: a claim that holds when this ends has a token above mark, and no less than
-- the token asked for; and last, and M, are no less than that.
local old, need = find(id), math.max(ARGV[6], mark + 1)
if old and old.held and not old.linger and old.mark == '-' and old.token + 0 < need then
  old.token, last, dirty = num(need), math.max(last, need), true
  if last > high then raise(timely) end
  put(old)
end
least = math.max(least, need) -- the claim may have run out since, and be granted anew
local reply = again(c) or misfit(c)
if not reply and ARGV[7] and not fits(c) then reply = 'r ' .. stands() end
return done(reply or crowded() and 'f' or admit(c))
