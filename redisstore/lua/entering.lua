-- read answers a claim that is text. It is not in any queue yet.
local function read(text)
  local ttl, cid, units, asked, flags, box, owner = string.match(text,
    '^0+ 0*(%d+) (%S+) (%d+) (%d+) (%S+) (%S+) (.*)$')
  return {id = cid, ttl = ttl, units = tonumber(units), asked = tonumber(asked), over = flags == 'o-',
    alone = false, linger = false, held = false, spoke = '0', granted = '0', token = '0',
    arrived = stamp, box = box, owner = owner}
end

-- again renews c if it is in the queue already, and answers its status then.
local function again(c)
  local text = id == sole and soletext or redis.call('HGET', K, id)
  if text and not marked(text) then
    local old = parse(id, text)
    if old.linger then return 'g' end -- nobody owns it any more
    renew(old, c.ttl)
    old.box = c.box
    put(old)
    live(old)
    return status(old)
  end
  return text and string.sub(text, 6) + 0 > now and 'g' -- see bar
end

-- misfit answers what is wrong with the limit of c. A queue that is not in use
-- takes it over.
local function misfit(c)
  if used + n + d == 0 then limit = c.asked end
  if c.asked ~= limit and c.asked ~= d then return 'l ' .. num(limit) .. ' 0' end
  if c.units > limit then return 'l ' .. num(limit) .. ' 1' end
end

-- queuing tells whether any waiting claim stands in the way of new ones. If
-- there is room nevertheless, that is mostly the first.
local function queuing()
  for at = 0, n - 1 do
    local first = redis.call('ZRANGE', Q, at, at)[1]
    local c = first and find(first)
    if not c or c.held then -- see scan
      for _, k in ipairs((scan())) do
        if not k.held and k.units <= limit then return true end
      end
      return false
    end
    if c.units <= limit then return true end
  end
  return false
end

local function fits(c)
  return used + c.units <= limit and (c.over or not queuing())
end

-- admit puts c into the queue, grants what fits, and answers its status.
local function admit(c)
  local queued = n > 0
  if used + n == 0 then min = now + c.ttl end
  seq, dirty = seq + 1, true
  c.seq = seq
  span(c, c.ttl)
  if not queued and used + c.units <= limit then
    draw(c)
    used = used + c.units
    put(c)
    live(c)
    return status(c)
  end
  put(c)
  live(c)
  redis.call('ZADD', Q, seq, id)
  if not queued then redis.call('PEXPIREAT', Q, math.ceil(x / 1000)) end
  n = n + 1
  if c.over then o = o + 1 end
  grant()
  if mine then return status(mine) end
  if not queued then want() end
  return status(c, n - 1)
end
