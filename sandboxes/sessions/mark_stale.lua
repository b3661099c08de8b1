-- Declare a binding stale if it is still this document. An older mark stays.
-- KEYS: binding, stale
-- ARGV: binding document, stale document
-- Returns 'marked', 'already', 'changed' or 'absent'.
local binding = redis.call('GET', KEYS[1])
if not binding then
  return 'absent'
end
if binding ~= ARGV[1] then
  return 'changed'
end
return redis.call('SET', KEYS[2], ARGV[2], 'NX') and 'marked' or 'already'
