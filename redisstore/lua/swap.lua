-- KEYS record watchers; ARGV version ttl message, and the value or nothing to
-- delete.
local now = t[1] * 1000000 + t[2]
local m = redis.call('HMGET', KEYS[1], 'version', 'expires', 'value')
local last, left = tonumber(m[1]) or 0, 0
if not m[3] then
  m[1] = '0'
elseif m[2] ~= '0' then
  left = m[2] - now
  if left <= 0 then m[1], m[3], left = '0', false, 0 end
end
if m[1] ~= ARGV[1] then
  return 'c ' .. m[1] .. ' ' .. string.format('%.0f', left) .. ' ' .. (m[3] or '')
end
local reply, keep = 'o 0', 0
if ARGV[4] then
  last = math.max(last + 1, now)
  local ttl = tonumber(ARGV[2])
  local ends = ttl > 0 and now + ttl or 0
  redis.call('HSET', KEYS[1], 'version', last, 'expires', ends, 'value', ARGV[4])
  if ttl > 0 then keep = math.max(last, ends) else redis.call('PERSIST', KEYS[1]) end
  reply = string.format('o %.0f', last)
elseif m[3] then
  redis.call('HDEL', KEYS[1], 'value')
  keep = math.max(last, now)
end
-- The version stays until the clock has passed it by a minute: no version
-- comes twice, also after the record has gone.
if keep > 0 then redis.call('PEXPIREAT', KEYS[1], math.ceil(keep / 1000) + 60000) end
local boxes = redis.call('SMEMBERS', KEYS[2])
if #boxes > 0 then
  redis.call('DEL', KEYS[2])
  for i = 1, #boxes do -- as in head, where 125 is }
    redis.pcall(string.byte(boxes[i], -1) == 125 and 'SPUBLISH' or 'PUBLISH', boxes[i], ARGV[3])
  end
end
return reply
