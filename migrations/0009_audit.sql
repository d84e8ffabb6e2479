-- Where a change came from: the API key, the address and the call. All are null for what the engine did by itself, and in older rows.
alter table events add column key_id text;
alter table events add column address text;
alter table events add column call_id text;

alter table api_keys add column last_used_us bigint;

-- An installation that existed before this migration has a user. It keeps the more permissive defaults that it was set up with.
insert into installation (key, value) select 'permissive_defaults', 'kept' where exists (select 1 from users);
