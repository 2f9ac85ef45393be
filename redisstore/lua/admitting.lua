-- read returns the claim at a. It is not in any queue yet.
local function read(a)
  local ttl, claim, kind, units, limit, flags, box, owner = match(ARGV[a + 2], '^0*(%d+) (%S+) (%l) (%d+) (%d+) (%S+) (%S+) (.*)$')
  return {id = claim, ttl = ttl, kind = kind, units = tonumber(units), asked = tonumber(limit),
    over = string.byte(flags) == 111, alone = false, linger = false, held = false, spoke = '0', granted = '0', token = '0', -- 111 is o
    arrived = stamp, mark = '-', box = box, owner = owner}
end

-- again renews c if it is in the queue already, and returns its status then.
local function again(c)
  local old = find(id)
  if old then
    if old.linger or old.mark ~= '-' then return 'g' end -- it is not the caller's any more
    redis.call('PERSIST', M) -- see frugal
    renew(old, c.ttl)
    old.box = c.box
    put(old)
    live(old)
    return status(old)
  end
  return redis.call('GET', K .. ':' .. id) and 'g' -- see bar
end

-- misfit returns what is wrong with the kind or limit of c. A queue that is not
-- in use takes them over.
local function misfit(c)
  if used + n + d == 0 then kind, limit = c.kind, c.asked end
  if c.kind ~= kind or c.asked ~= limit and c.asked ~= d then return 'l ' .. num(limit) .. ' 0 ' .. kind end
  if c.units > limit then return 'l ' .. num(limit) .. ' 1 ' .. kind end
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

-- crowded reports whether there is no room for one more claim.
local function crowded() return used + n >= CROWD and redis.call('HLEN', K) > CROWD end

local function fits(c)
  return used + c.units <= limit and (c.over or not queuing())
end

-- admit puts c into the queue, grants what fits, and returns its status.
local function admit(c)
  local queued = n > 0
  if used + n == 0 then min = now + c.ttl end
  seq, dirty = seq + 1, true
  c.seq = seq
  span(c, c.ttl)
  if not queued and used + c.units <= limit then
    draw(c)
    used, h = used + c.units, id
    put(c)
    live(c)
    return status(c)
  end
  put(c)
  live(c)
  redis.call('ZADD', Q, seq, id)
  if not queued and d == 0 then redis.call('PEXPIRE', Q, math.ceil((x - now) / 1000)) end
  n = n + 1
  if c.over then o = o + 1 end
  -- The server may have evicted the zset, and this claim would be the first now.
  if redis.call('ZCARD', Q) ~= n then scan() end
  grant()
  if mine then return status(mine) end
  if not queued then want() end
  return status(c)
end
