-- The memory of a node of a quorum is a string: m EPOCH RUN MARK, with the mark of its
-- admission; or q QUARANTINE RUN ENDS. RUN is the server's, another one each time it
-- is started: what it has loaded then may be older than what it promised.
local function running()
  local info = call('INFO', 'server')
  local _, at = string.find(info, 'run_id:', 1, true)
  return at and string.match(info, '^%x+', at + 1) or ''
end

-- remembered returns epoch and mark, if that is the memory of this server as it runs.
local function remembered(text)
  local epoch, run, mark = string.match(text or '', '^m (%S+) (%x+) (%d+)$')
  if epoch and run == running() then return epoch, tonumber(mark) end
end
