-- KEYS hash zset, for each claim; ARGV mailbox, then id ttl used for each.
-- A ttl of 0 looks and renews nothing.
local box, out, rest = ARGV[1], {}, {}

local stamp = t[1] .. string.sub('00000' .. t[2], -6)

-- It holds, and nothing can have run out: nobody else is concerned.
for i = 1, #KEYS / 2 do
  local key, a = KEYS[2 * i - 1], 3 * i - 1
  local m = redis.call('HMGET', key, ARGV[a], 's', 'x')
  local easy = not m[2] and not m[1]
  out[i] = 'g'
  if m[1] and m[2] then
    local un, f, u, at, ttl, g, token, tail = string.match(m[1],
      '^(%d+) (o?%-) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    local limit, used, n, min = string.match(m[2], '^(%d+) (%d+) (%d+) %d+ %d+ (%d+) ')
    easy = un and g ~= '0' and (n == '0' and used == un and now - at < ttl + 0 or now < min + 0)
      and (box == '-' or string.find(tail, box, 1, true))
    if easy then
      local given, spoke = ARGV[a + 1], ARGV[a + 2]
      local ends = now + given
      if given ~= '0' then
        easy = ends >= min + 0 and ends + 60000000 <= m[3] + 0
        if easy then
          if tonumber(spoke) > tonumber(u) then u = spoke end
          redis.call('HSET', key, ARGV[a], un .. ' ' .. f .. ' ' .. u .. ' ' .. stamp .. ' ' .. given .. ' '
            .. g .. ' ' .. token .. ' ' .. tail)
        end
      end
      out[i] = 'h ' .. token .. ' ' .. n .. (un == limit and ' 1' or ' 0')
    end
  end
  if not easy then rest[#rest + 1] = i end
end
if #rest == 0 then return table.concat(out, '\n') end

-- include machine

for _, i in ipairs(rest) do
  local key, a = KEYS[2 * i - 1], 3 * i - 1
  load(key, KEYS[2 * i], ARGV[a], redis.call('HMGET', key, 'last', 'x', 's'))
  advance()
  local c = claim(id)
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
