-- KEYS hash, for each name; ARGV claim, for each, as in enter.
-- The reply is a line for each, as in enter; or one, "l", the number of the claim
-- whose limit is not right, and then as in a status.

-- include vacant

local out, states, free = {}, {}, true
for i = 1, #KEYS do
  states[i] = call('HGET', KEYS[i], 's')
  free = free and vacant(states[i], ARGV[i])
end
if free then
  for i = 1, #KEYS do
    occupy(KEYS[i], states[i], ARGV[i])
    out[i] = stamp
  end
  return table.concat(out, '\n')
end

local now = t[1] * 1000000 + t[2]

-- include machine
-- include entering

-- Claims that are there are renewed in any case; the others are looked at first,
-- and entered if all of them can hold.
local claims, all = {}, true
for i = 1, #KEYS do
  local c = read(ARGV[i])
  load(KEYS[i], c.id, states[i])
  advance()
  out[i] = again(c)
  if out[i] then
    all = all and string.byte(out[i]) == 104 -- h
  else
    local wrong = misfit(c)
    if wrong then return done('l ' .. i .. string.sub(wrong, 2)) end
    claims[i] = c
    if fits(c) then
      out[i] = 'r 0 0'
    else
      out[i], all = 'r ' .. stands(), false
    end
  end
  done()
end
if all then
  for i = 1, #KEYS do
    local c = claims[i]
    if c then
      load(KEYS[i], c.id, redis.call('HGET', KEYS[i], 's'))
      misfit(c)
      out[i] = done(admit(c))
    end
  end
end
return table.concat(out, '\n')
