-- KEYS hash zset, for each claim; ARGV mailbox, then id ttl used for each.
-- A ttl of 0 looks and renews nothing.
local box, out, rest = ARGV[1], {}, {}

-- It holds, and nothing can have run out: nobody else is concerned.
for i = 1, #KEYS / 2 do
  local key, a = KEYS[2 * i - 1], 3 * i - 1
  local m = redis.call('HMGET', key, ARGV[a], 'limit', 'used', 'n', 'min', 'x')
  local min, easy = tonumber(m[5]) or 0, false
  if not m[1] then
    out[i], easy = 'g', now < min or m[3] == '0' and m[4] == '0' or not m[3]
  else
    local e, u, g, t, un, mid, f, b, owner = string.match(m[1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+ %d+) (%S+) (%S+) (.*)$')
    local alone = m[4] == '0' and m[3] == un
    easy = e and g ~= '0' and not string.find(f, 'l', 1, true) and (b == box or box == '-')
      and (now < min or alone and now < tonumber(e))
    if easy then
      local ttl = tonumber(ARGV[a + 1])
      if ttl > 0 then
        local ends = now + ttl
        redis.call('HSET', key, ARGV[a], string.format('%.0f %.0f %s %s %s %s %s %s %s', ends,
          math.max(u, tonumber(ARGV[a + 2])), g, t, un, mid, f, b, owner))
        if alone or ends < min then redis.call('HSET', key, 'min', ends) end
        if tonumber(m[6]) < ends + 60000000 then
          local x = ends + 120000000
          redis.call('HSET', key, 'x', x)
          redis.call('PEXPIREAT', key, math.ceil(x / 1000))
          if m[4] ~= '0' then redis.call('PEXPIREAT', KEYS[2 * i], math.ceil(x / 1000)) end
        end
      end
      out[i] = 'h ' .. t .. ' ' .. m[4] .. ' ' .. (un == m[2] and 1 or 0)
    end
  end
  if not easy then rest[#rest + 1] = i end
end
if #rest == 0 then return table.concat(out, '\n') end

-- include machine

for _, i in ipairs(rest) do
  local a = 3 * i - 1
  load(KEYS[2 * i - 1], KEYS[2 * i], ARGV[a])
  advance()
  local c = claim(id)
  if c and c.linger then c = nil end
  if c and tonumber(ARGV[a + 1]) > 0 then
    c.exp = now + ARGV[a + 1]
    if c.granted > 0 then c.spoke = math.max(c.spoke, tonumber(ARGV[a + 2])) end
    if box ~= '-' then c.box = box end
    put(c)
    live(c)
  end
  out[i] = done(status(c))
end
return table.concat(out, '\n')
