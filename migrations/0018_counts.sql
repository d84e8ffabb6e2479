-- What exists of an organization, or of a user without one, counted in the transactions that change it, so that nothing has to be
-- counted when it is shown or compared with a limit. The rule of each count is in the statements below; store/organizations/counts.rs
-- repeats it for every change.
alter table usage_counters add column clusters bigint not null default 0;
alter table usage_counters add column hourly_rate_micros bigint not null default 0;
alter table usage_counters add column instances bigint not null default 0;
alter table usage_counters add column cpu_milli bigint not null default 0;
alter table usage_counters add column gpus bigint not null default 0;
alter table usage_counters add column volumes bigint not null default 0;
alter table usage_counters add column volume_gb bigint not null default 0;
alter table usage_counters add column promised_gb bigint not null default 0;
alter table usage_counters add column waiting bigint not null default 0;

insert into usage_counters (scope, job_bytes, requests, outcomes)
    select scope, 0, 0, 0 from (select scope from clusters union select scope from volumes union select scope from requests) counted
    where scope not in (select scope from usage_counters);

update usage_counters set
    clusters = (select count(*) from clusters c where c.scope = usage_counters.scope and c.state <> 'DESTROYED'),
    hourly_rate_micros = (select cast(coalesce(sum(c.hourly_rate_micros), 0) as bigint) from clusters c
        where c.scope = usage_counters.scope and c.state = 'RUNNING'),
    instances = (select count(*) from clusters c cross join instances i where c.scope = usage_counters.scope
        and c.state <> 'DESTROYED' and i.cluster_id = c.id and (i.holds_capacity = 1 or c.state = 'PENDING')),
    cpu_milli = (select cast(coalesce(sum(i.cpu_milli), 0) as bigint) from clusters c cross join instances i
        where c.scope = usage_counters.scope and c.state <> 'DESTROYED' and i.cluster_id = c.id
        and (i.holds_capacity = 1 or c.state = 'PENDING')),
    gpus = (select cast(coalesce(sum(i.gpu_count), 0) as bigint) from clusters c cross join instances i
        where c.scope = usage_counters.scope and c.state <> 'DESTROYED' and i.cluster_id = c.id
        and (i.holds_capacity = 1 or c.state = 'PENDING')),
    volumes = (select count(*) from volumes v where v.scope = usage_counters.scope and v.remains = 1),
    volume_gb = (select cast(coalesce(sum(v.size_gb), 0) as bigint) from volumes v
        where v.scope = usage_counters.scope and v.remains = 1),
    promised_gb = (select cast(coalesce(sum(coalesce(v.to_gb, v.size_gb)), 0) as bigint) from volumes v
        where v.scope = usage_counters.scope and v.remains = 1),
    waiting = (select count(*) from requests r where r.scope = usage_counters.scope and r.waiting = 1
        and r.examined_us is not null);

-- The sum of the entries of each account.
create table ledger_balances (
    account text primary key,
    amount_micros bigint not null
);
insert into ledger_balances (account, amount_micros)
    select account, cast(sum(amount_micros) as bigint) from ledger_entries group by account;
