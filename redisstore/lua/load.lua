-- KEYS record watchers; ARGV mailbox version, or nothing.
-- With a mailbox: whoever changes the record from that version tells it.
local now = t[1] * 1000000 + t[2]
local m = redis.call('HMGET', KEYS[1], 'version', 'expires', 'value')
local left = 0
if not m[3] then
  m[1] = '0'
elseif m[2] ~= '0' then
  left = m[2] - now
  if left <= 0 then m[1], m[3], left = '0', false, 0 end
end
-- Who looks again and again need not write each time.
if ARGV[2] == m[1] and (redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 or redis.call('PTTL', KEYS[2]) < 30000) then
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], 60000)
end
return m[1] .. ' ' .. string.format('%.0f', left) .. ' ' .. (m[3] or '')
