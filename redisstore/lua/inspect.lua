-- KEYS hash, for each name; nothing is written, and nothing understood: that is
-- left to who asks, so that it costs others little. The reply is the time, then for
-- each name a line with the number of texts, and with the length of each of them,
-- and the texts: names and values of the fields; or one text, and why there are none.
-- It ends before there are too many claims: who asks goes on with the next name.
local out, lone, room = {t[1] .. string.sub('00000' .. t[2], -6)}, redis.call('MGET', unpack(KEYS)), CROWD
for i = 1, #KEYS do
  local all
  if lone[i] then
    all = {'', lone[i]} -- see state in machine.lua
  else
    local n = redis.pcall('HLEN', KEYS[i])
    if type(n) == 'number' then
      room = room - n
      if room < 0 and i > 1 then break end
      if n > 2 * CROWD then
        all = {'pawl: too many claims for one name in ' .. KEYS[i]}
      else
        all = redis.call('HGETALL', KEYS[i])
      end
    else
      all = {n.err}
    end
  end
  local sizes = {#all}
  for k = 1, #all do sizes[k + 1] = #all[k] end
  out[#out + 1] = table.concat(sizes, ' ') .. '\n' .. table.concat(all)
end
return table.concat(out, '\n')
