-- For whom the outcome of an idempotent call is counted: the organization of the caller, or the caller without one. Older rows stay counted
-- for their user until they expire.
alter table idempotency add column scope text not null default '';
update idempotency set scope = user_id;

-- 1 for a key that was ended at once. Its end does not depend on the clock of the replica that looks it up.
alter table s3_keys add column revoked bigint not null default 0;
