-- KEYS hash M; ARGV claim, and try or nothing
-- The reply is a status, or the token alone, if so is the claim.

-- include head
-- include entering

local s = call('HGET', KEYS[1], 's')
if not s and vacant(KEYS[1], 1) then
  reserve()
  occupy(KEYS[1], 1)
  return stamp
end

-- include machine
-- include admitting

local c = read(1)
load(KEYS[1], c.id, s)
advance()
local reply = again(c) or misfit(c)
if not reply and ARGV[9] and not fits(c) then reply = 'r ' .. stands() end
return done(reply or admit(c))
