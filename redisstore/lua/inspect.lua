-- KEYS hash, for each name; nothing is written, and nothing understood: that is
-- left to who asks, so that it costs others little. The reply is the time, then for
-- each name a line with the number of texts, and with the length of each of them,
-- and the texts: names and values of the fields; or one text, and why there are none.
local out = {t[1] .. string.sub('00000' .. t[2], -6)}
for i = 1, #KEYS do
  local all = redis.pcall('HGETALL', KEYS[i])
  if all.err then all = {all.err} end
  local sizes = {#all}
  for k = 1, #all do sizes[k + 1] = #all[k] end
  out[#out + 1] = table.concat(sizes, ' ') .. '\n' .. table.concat(all)
end
return table.concat(out, '\n')
