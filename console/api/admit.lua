-- Admit one command: the caller's rate first, then the space's cap of commands at once.
-- KEYS: bucket, set of running commands. ARGV: tokens a second, size of the bucket, cap, the command's
-- own name, its lease in milliseconds (after which it counts no more, whatever became of it).
-- Returns {verdict, wait in ms, whole tokens left, ms until there is one more or 0, running commands}; the
-- verdict is 0, 1 for the rate, 2 for the cap.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
local running = redis.call('ZCARD', KEYS[2])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = math.min(burst, (tonumber(kept[1]) or burst) + math.max(0, now - (tonumber(kept[2]) or now)) * rate / 1000)
local function told(verdict, wait)
  local whole = math.floor(tokens)
  local more = tokens < burst and math.ceil((whole + 1 - tokens) * 1000 / rate) or 0
  return {verdict, wait, whole, more, running}
end
if running >= tonumber(ARGV[3]) then
  return told(2, 0)
end
if tokens < 1 then
  return told(1, math.ceil((1 - tokens) * 1000 / rate))
end
tokens = tokens - 1
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
local lease = tonumber(ARGV[5])
redis.call('ZADD', KEYS[2], now + lease, ARGV[4])
if redis.call('PTTL', KEYS[2]) < lease then
  redis.call('PEXPIRE', KEYS[2], lease)
end
running = running + 1
return told(0, 0)
