-- KEYS hash, on a cluster also the zset, M

-- include stamp
-- include head
-- include machine
-- include frugal

load(KEYS[1], '', state(KEYS[1]))
advance()
local out, list = {stamp}, scan()
table.sort(list, function(a, b) return a.seq < b.seq end)
for _, k in ipairs(list) do
  if k.held then
    local c = parse(k.id, k.text)
    out[#out + 1] = c.id .. ' ' .. c.text
    retire(c, c.exp) -- until it is told, or its time is up, it may use tokens
    remove(c)
    tell(c, 'b ' .. c.id)
  end
end
grant()
return done(table.concat(out, '\n'))
