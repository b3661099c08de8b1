-- Compare and delete: forget the sandbox if the binding is still this document.
-- KEYS: lock, binding, token, stale
-- ARGV: owner, binding document
-- Returns 'removed', 'absent', 'changed', or 'lost' if the lock is no longer the owner's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'lost'
end
local binding = redis.call('GET', KEYS[2])
if not binding then
  return 'absent'
end
if binding ~= ARGV[2] then
  return 'changed'
end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
return 'removed'
