-- Renews keys for those who have them; no key is made, and none gets less than it has.
-- KEYS: the locks. ARGV: ID TTL of each. Returns a line for each: "h TOKEN", "g", "e ERROR".
local lines = {}
for i, key in ipairs(KEYS) do
  local text = redis.pcall('GET', key)
  local id, ttl = ARGV[2 * i - 1] .. ':', ARGV[2 * i]
  if type(text) == 'table' then
    lines[i] = 'e ' .. text.err
  elseif text and string.sub(text, 1, #id) == id then
    if redis.call('PTTL', key) < tonumber(ttl) then
      redis.call('PEXPIRE', key, ttl)
    end
    lines[i] = 'h ' .. (string.match(text, '^%d+', #id + 1) or '?')
  else
    lines[i] = 'g'
  end
end
return table.concat(lines, '\n')
