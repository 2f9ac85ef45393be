-- KEYS the hashes of different names, then M; ARGV four for each name: e id ms claim, as
-- enter has them, or l id mark used, as leave has them.
-- The reply is a line for each: what enter or leave reply, if they need only their first
-- way, for the queue has no other claim; e and the error, if it is one; or a hyphen if
-- they need more: then nothing was done. So it is for what is neither e nor l.

-- include stamp

local sub, n = string.sub, #KEYS - 1
local all = call('MGET', unpack(KEYS))
local timely, drew, out = ahead(all[n + 1]), false, {}
for i = 1, n do
  local a, key, text, reply = 4 * i - 3, KEYS[i], all[i], '-'
  local id = ARGV[a + 1]
  if ARGV[a] == 'e' then
    if not text and timely and call('EXISTS', key, key .. ':' .. id) == 0 then
      local set = redis.pcall('SET', key, stamp .. ' ' .. ARGV[a + 3], 'PX', ARGV[a + 2])
      reply = set.err and 'e ' .. set.err or stamp
      drew = drew or not set.err
    end
  elseif ARGV[a] == 'l' and text and ARGV[a + 2] == '-' and sub(text, 31, 30 + #id) == id and string.byte(text, 31 + #id) == 32
    and (ARGV[a + 3] == '' or ARGV[a + 3] == sub(text, 1, 16)) and sub(text, 1, 16) + sub(text, 18, 29) > stamp + 0 then
    call('DEL', key)
    reply = 'h'
  end
  out[i] = reply
end
if drew then call('SET', M, stamp .. ' ' .. stamp) end
return table.concat(out, '\n')
