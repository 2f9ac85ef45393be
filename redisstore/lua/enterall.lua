-- KEYS hash, for each name, M; ARGV claim, for each.
-- The reply is a line for each, as in enter; or one, with the number of a claim:
-- "l", if its kind or limit is not right, and then as in a status, or "f".

-- include stamp

local count, texts, out = #KEYS - 1, {}, {}
local free = ahead(call('MGET', M)[1])
for from = 1, count, 1000 do -- a command cannot have any number of arguments
  local to = math.min(from + 999, count)
  local keys = {}
  for i = from, to do keys[#keys + 1] = KEYS[i] .. ':' .. ARGV[3 * i - 2] end
  local bars, found = call('MGET', unpack(keys)), call('MGET', unpack(KEYS, from, to))
  for i = from, to do
    texts[i] = found[i - from + 1]
    free = free and not texts[i] and not bars[i - from + 1]
  end
  free = free and call('EXISTS', unpack(KEYS, from, to)) == 0
end
if free then
  for i = 1, count do
    call('SET', KEYS[i], stamp .. ' ' .. ARGV[3 * i], 'PX', ARGV[3 * i - 1])
    out[i] = stamp
  end
  call('SET', M, stamp .. ' ' .. stamp) -- see draw
  return table.concat(out, '\n')
end

-- include share

for i = 1, count do share(KEYS[i], 3 * i - 2, texts[i]) end

-- include head
-- include machine
-- include admitting

-- Claims that are there are renewed in any case; the others are looked at first,
-- and entered if all of them can hold.
local claims, all = {}, true
for i = 1, count do
  local c = read(3 * i - 2)
  load(KEYS[i], c.id, state(KEYS[i], texts[i]))
  advance()
  out[i] = again(c)
  if out[i] then
    all = all and string.byte(out[i]) == 104 -- h
  else
    local wrong = misfit(c)
    local fit = not wrong and fits(c)
    if fit and crowded() then wrong = 'f' end
    if wrong then return done(string.sub(wrong, 1, 1) .. ' ' .. i .. string.sub(wrong, 2)) end
    claims[i] = c
    if fit then
      out[i] = 'r 0 0'
    else
      out[i], all = 'r ' .. stands(), false
    end
  end
  done()
end
if all then
  for i = 1, count do
    local c = claims[i]
    if c then
      load(KEYS[i], c.id, call('HGET', KEYS[i], 's'))
      misfit(c)
      out[i] = done(admit(c))
    end
  end
end
return table.concat(out, '\n')
