-- KEYS hash, for each claim; ARGV mailbox, then id ttl used for each.
-- A ttl of 0 looks and renews nothing.
local box, out, rest, zeros = ARGV[1], {}, {}, '0000000000000000'

local now = t[1] * 1000000 + t[2]
local stamp = t[1] .. string.sub('00000' .. t[2], -6)

-- It holds, and nothing can have run out: nobody else is concerned.
for i = 1, #KEYS do
  local key, a = KEYS[i], 3 * i - 1
  local m = redis.call('HMGET', key, 's', ARGV[a])
  local easy = not m[1] and not m[2]
  out[i] = 'g'
  if m[1] then
    local sole, x, n, min, un, limit, f, u, at, ttl, g, token, tail
    local single, alone = string.byte(m[1]) == 104 -- h
    if single then
      n, min = '0', 0
      token, x, at, u, ttl, sole, un, limit, tail = string.match(m[1],
        '^h (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) o?%- (.*)$')
      easy = sole == ARGV[a] and now - at < ttl + 0
      if easy then x, alone = x * 1000000, un == limit end
    elseif m[2] then
      x, n, min = string.match(m[1], '^%d+ (%d+) %d+ %d+ (%d+) %d+ %d+ (%d+) ')
      un, f, u, at, ttl, g, token, tail = string.match(m[2], '^(%d+) (o?a?%-) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
      alone = un and string.find(f, 'a', 1, true)
      easy = x and un and g ~= '0' and now < min + 0
    end
    easy = easy and (box == '-' or string.find(tail, box, 1, true))
    if easy then
      local given, spoke = ARGV[a + 1], ARGV[a + 2]
      if given ~= '0' then
        local ends, since = now + given, stamp
        if ends < at + ttl then -- requests may overtake each other
          ends, since, given = at + ttl, at, ttl
        end
        easy = ends >= min + 0 and ends + 60000000 <= x + 0 and (not single or #spoke <= 16)
        if easy then
          if tonumber(spoke) > tonumber(u) then u = spoke end
          if single then
            redis.call('HSET', key, 's', string.sub(m[1], 1, 30) .. since .. ' ' .. string.sub(zeros .. u, -16) .. ' '
              .. string.sub(zeros .. given, -12) .. string.sub(m[1], 77))
          else
            redis.call('HSET', key, ARGV[a], un .. ' ' .. f .. ' ' .. u .. ' ' .. since .. ' ' .. given .. ' ' .. g .. ' '
              .. token .. ' ' .. tail)
          end
        end
      end
      out[i] = 'h ' .. token .. ' ' .. n .. (alone and ' 1' or ' 0')
    end
  end
  if not easy then rest[#rest + 1] = i end
end
if #rest == 0 then return table.concat(out, '\n') end

-- include machine

for _, i in ipairs(rest) do
  local key, a = KEYS[i], 3 * i - 1
  load(key, ARGV[a], redis.call('HGET', key, 's'))
  advance()
  local c = find(id)
  if c and c.linger then c = nil end
  if c and ARGV[a + 1] ~= '0' then
    renew(c, ARGV[a + 1])
    if c.held then speak(c, ARGV[a + 2]) end
    if box ~= '-' then c.box = box end
    put(c)
    live(c)
  end
  out[i] = done(status(c))
end
return table.concat(out, '\n')
