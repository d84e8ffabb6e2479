-- What an organization, or a user without one, makes the engine keep, counted in the transactions that change it: the bytes of
-- its jobs, its requests, and (by user) the outcomes of calls with an idempotency key.
create table usage_counters (
    scope text primary key,
    job_bytes bigint not null,
    requests bigint not null,
    outcomes bigint not null
);

-- The part of a job: the objects whose keys begin with its id, and the pieces of its log that are rows.
alter table jobs add column stored_bytes bigint not null default 0;
update jobs set stored_bytes =
    coalesce((select sum(o.size) from objects o join buckets b on b.id = o.bucket_id
              where b.org_id = 'o-000000000000' and b.name = 'jobs' and o.key >= jobs.id || '/' and o.key < jobs.id || '0'), 0)
    + coalesce((select sum(l.length) from job_logs l where l.job_id = jobs.id and l.data is not null), 0);

insert into usage_counters (scope, job_bytes, requests, outcomes)
    select scope, sum(job_bytes), sum(requests), sum(outcomes) from (
        select scope, sum(stored_bytes) as job_bytes, 0 as requests, 0 as outcomes from jobs group by scope
        union all select scope, 0, count(*), 0 from requests group by scope
        union all select user_id, 0, 0, count(*) from idempotency group by user_id
    ) counted group by scope;

-- How many bytes of job files, logs and outputs; null is what the configuration says.
alter table limits add column job_bytes bigint;
