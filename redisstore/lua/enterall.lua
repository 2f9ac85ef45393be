-- KEYS hash, for each name, M; ARGV claim, for each.
-- The reply is a line for each, as in enter; or one, "l", the number of the claim
-- whose kind or limit is not right, and then as in a status.

-- include head
-- include entering

local out, states, free = {}, {}, true
for i = 1, #KEYS - 1 do
  states[i] = call('HGET', KEYS[i], 's')
  free = free and not states[i] and vacant(KEYS[i], 8 * i - 7)
end
if free then
  reserve()
  for i = 1, #KEYS - 1 do
    occupy(KEYS[i], 8 * i - 7)
    out[i] = stamp
  end
  return table.concat(out, '\n')
end

-- include machine
-- include admitting

-- Claims that are there are renewed in any case; the others are looked at first,
-- and entered if all of them can hold.
local claims, all = {}, true
for i = 1, #KEYS - 1 do
  local c = read(8 * i - 7)
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
  for i = 1, #KEYS - 1 do
    local c = claims[i]
    if c then
      load(KEYS[i], c.id, call('HGET', KEYS[i], 's'))
      misfit(c)
      out[i] = done(admit(c))
    end
  end
end
return table.concat(out, '\n')
