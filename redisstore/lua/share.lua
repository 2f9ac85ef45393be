-- share lets the server say whether it has the memory for one more claim of the
-- queue that is text, if it is: state begins by deleting, and then all is allowed.
local function share(key, a, text)
  if text and string.sub(text, 31, 31 + #ARGV[a]) ~= ARGV[a] .. ' ' then call('SET', key, '', 'NX') end
end
