-- KEYS hash zset, for each claim; ARGV mailbox, then id ttl used for each.
-- A ttl of 0 looks and renews nothing.
local box, out, rest = ARGV[1], {}, {}

local stamp = t[1] .. string.sub('00000' .. t[2], -6)

-- It holds, and nothing can have run out: nobody else is concerned.
for i = 1, #KEYS / 2 do
  local key, a = KEYS[2 * i - 1], 3 * i - 1
  local m = redis.call('HMGET', key, 's', ARGV[a])
  local easy = not m[1] and not m[2]
  out[i] = 'g'
  if m[1] then
    local last, x, limit, used, n, osn, min, bh, sole, text = string.match(m[1],
      '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+ %d+) (%d+) (%d+ %S*) (%S*) ?(.*)$')
    if sole ~= ARGV[a] then sole, text = nil, m[2] end
    local un, f, u, at, ttl, g, token, tail
    if text then
      un, f, u, at, ttl, g, token, tail = string.match(text, '^(%d+) (o?%-) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    end
    easy = un and g ~= '0' and (sole and now - at < ttl + 0 or now < min + 0)
      and (box == '-' or string.find(tail, box, 1, true))
    if easy then
      local given, spoke = ARGV[a + 1], ARGV[a + 2]
      if given ~= '0' then
        local ends, since = now + given, stamp
        if ends < at + ttl then -- requests may overtake each other
          ends, since, given = at + ttl, at, ttl
        end
        easy = ends >= min + 0 and ends + 60000000 <= x + 0
        if easy then
          if tonumber(spoke) > tonumber(u) then u = spoke end
          text = un .. ' ' .. f .. ' ' .. u .. ' ' .. since .. ' ' .. given .. ' ' .. g .. ' ' .. token .. ' ' .. tail
          if sole then
            redis.call('HSET', key, 's', last .. ' ' .. x .. ' ' .. limit .. ' ' .. used .. ' ' .. n .. ' ' .. osn .. ' '
              .. min .. ' ' .. bh .. ' ' .. sole .. ' ' .. text)
          else
            redis.call('HSET', key, ARGV[a], text)
          end
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
  load(key, KEYS[2 * i], ARGV[a], redis.call('HGET', key, 's'))
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
