-- KEYS hash for each claim; ARGV id mark for each. It only reads: the server tells of
-- the next change of what was read. The reply has a letter for each claim: h if it holds
-- as its owner left it, g if not.
local lone, out = redis.call('MGET', unpack(KEYS)), {}
for i = 1, #KEYS do
  local id, mark, text = ARGV[2 * i - 1], ARGV[2 * i], lone[i]
  local held
  if text then -- see unfold in head.lua
    held = mark == '-' and string.sub(text, 31, 31 + #id) == id .. ' '
  else
    text = redis.pcall('HGET', KEYS[i], id)
    local granted, owner = string.match(type(text) == 'string' and text or '', '^%d+ %S+ %d+ %d+ %d+ (%d+) %d+ %d+ %d+ (%S+) ')
    held = granted and granted ~= '0' and owner == mark
  end
  out[i] = held and 'h' or 'g'
end
return table.concat(out)
