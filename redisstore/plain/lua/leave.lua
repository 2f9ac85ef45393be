-- Deletes a key for who has it, or keeps it for a while without an owner.
-- KEYS: the lock. ARGV: ID LINGER, in milliseconds. Returns "h" or "g".
local text, id = redis.call('GET', KEYS[1]), ARGV[1] .. ':'
if not text or string.sub(text, 1, #id) ~= id then
  return 'g'
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], '~' .. text, 'PX', ARGV[2])
end
return 'h'
