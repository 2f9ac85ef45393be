-- KEYS hash memory M; ARGV claim, as in enter.lua, epoch floor token, and try or nothing
-- The reply is a status; or e EPOCH, if the memory is another, or a hyphen if there is none.

-- include stamp
-- include remembered

-- The memory is looked at first: without it nothing is changed.
local m = call('MGET', KEYS[1], KEYS[2])
local epoch, mark = remembered(m[2])
if epoch ~= ARGV[4] then return 'e ' .. (epoch or '-') end

-- include share

share(KEYS[1], 1, m[1])

-- include head
-- include machine
-- include admitting

know()
local c = read(1)
load(KEYS[1], c.id, state(KEYS[1], m[1]))
least = math.max(ARGV[5], mark + 1)
back = true -- no spare tokens: these may be ahead of the clock, by which those are counted
advance()

-- Invariant: a claim that holds when this ends has a token above mark, and no less than
-- the token asked for; and last, and M, are no less than that.
local old, need = find(id), math.max(ARGV[6], mark + 1)
if old and old.held and not old.linger and old.mark == '-' and old.token + 0 < need then
  old.token, last, dirty = num(need), math.max(last, need), true
  if last > high then raise(timely) end
  put(old)
end
local reply = again(c) or misfit(c)
if not reply and ARGV[7] and not fits(c) then reply = 'r ' .. stands() end
return done(reply or crowded() and 'f' or admit(c))
