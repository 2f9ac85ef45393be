-- KEYS hash M; ARGV claim, and try or nothing
-- The reply is a status, or the token alone, if so is the claim; or f, if there
-- is no room for it.

-- include stamp
-- include entering

local m = call('MGET', KEYS[1], M, KEYS[1] .. ':' .. ARGV[1])
if not m[1] and not m[3] and ahead(m[2]) then
  local r = occupy(KEYS[1], 1)
  if r and r.ok then
    reserve()
    return stamp
  end
end

share(KEYS[1], 1, m[1])

-- include head
-- include machine
-- include admitting

local c = read(1)
load(KEYS[1], c.id, state(KEYS[1], m[1]))
advance()
local reply = again(c) or misfit(c)
if not reply and ARGV[4] and not fits(c) then reply = 'r ' .. stands() end
return done(reply or crowded() and 'f' or admit(c))
