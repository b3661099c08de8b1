-- Take one token from a bucket that fills by itself.
-- KEYS: bucket. ARGV: tokens a second, size of the bucket.
-- Returns {0, or after how many milliseconds there is a token again; whole tokens left; after how many
-- milliseconds there is one more, 0 if it is full}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = math.min(burst, (tonumber(kept[1]) or burst) + math.max(0, now - (tonumber(kept[2]) or now)) * rate / 1000)
local wait = 0
if tokens >= 1 then
  tokens = tokens - 1
else
  wait = math.ceil((1 - tokens) * 1000 / rate)
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
local whole = math.floor(tokens)
return {wait, whole, tokens < burst and math.ceil((whole + 1 - tokens) * 1000 / rate) or 0}
