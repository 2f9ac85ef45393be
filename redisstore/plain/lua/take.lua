-- Takes a key that is free, or renews it for who has it.
-- KEYS: the lock; its mark, if there is one. ARGV: ID TTL OWNER MARK-TTL
-- Returns "h TOKEN", "g" if the owner has left, or "o NOW LEFT VALUE" of another.
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local text = redis.call('GET', KEYS[1])
if not text then
  local token = now
  if KEYS[2] then
    local mark = redis.call('GET', KEYS[2]) or '0'
    if not string.find(mark, '^%d+$') then
      return redis.error_reply('pawl: cannot read the mark ' .. KEYS[2])
    end
    token = math.max(now, mark + 1)
  end
  token = string.format('%.0f', token)
  redis.call('SET', KEYS[1], ARGV[1] .. ':' .. token .. ':' .. ARGV[3], 'PX', ARGV[2])
  if KEYS[2] then
    redis.call('SET', KEYS[2], token, 'PX', ARGV[4])
  end
  return 'h ' .. token
end
local left, id = redis.call('PTTL', KEYS[1]), ARGV[1] .. ':'
if string.sub(text, 1, #id) == id then
  if left < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 'h ' .. (string.match(text, '^%d+', #id + 1) or '?')
end
if string.sub(text, 1, #id + 1) == '~' .. id then
  return 'g'
end
return string.format('o %.0f %d ', now, left) .. text
