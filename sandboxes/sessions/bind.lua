-- Bind the session to a sandbox if it is unbound and the lock is still the owner's.
-- KEYS: lock, binding, token, stale, turn
-- ARGV: owner, binding document, encrypted token or '', ttl ms of a guarding turn or '0'
-- Returns {'bound'}, {'lost'} if the lock is gone, or {'taken', document, token} of the winner.
-- Safe to run twice with one document.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'lost'}
end
if not redis.call('SET', KEYS[2], ARGV[2], 'NX') then
  local winner = redis.call('GET', KEYS[2])
  if winner ~= ARGV[2] then
    return {'taken', winner, redis.call('GET', KEYS[3]) or ''}
  end
end
redis.call('DEL', KEYS[3], KEYS[4])
if ARGV[3] ~= '' then
  redis.call('SET', KEYS[3], ARGV[3])
end
-- A lost binding means that the turn's lease may be lost too: guard the turn that may be in flight.
-- A new turn gets its own ticket (refs become 1), an ending one removes the guard.
if ARGV[4] ~= '0' and redis.call('EXISTS', KEYS[5]) == 0 then
  redis.call('HSET', KEYS[5], 'refs', '0', 'rebuild', '0')
  redis.call('PEXPIRE', KEYS[5], ARGV[4])
end
return {'bound'}
