-- KEYS: lock. ARGV: owner, lease ms. Returns 1, or 0 if the lock is no longer the owner's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
