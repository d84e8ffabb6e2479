-- Jobs: commands that run on clusters, what they wrote, and on which nodes.

alter table clusters add column jobs_parallel bigint not null default 1;

-- "removing" says that nobody sees it any more, and that the row goes when everything else of it is gone.
create table jobs (
    id text primary key,
    scope text not null,
    user_id text not null,
    org_id text,
    cluster_id text not null,
    instance_type text not null,
    name text not null,
    config text not null,
    teardown bigint not null,
    archive_bytes bigint,
    state text not null,
    outcome text,
    since_us bigint not null,
    attempt bigint not null,
    note text,
    log_bytes bigint not null,
    removing bigint not null,
    created_us bigint not null,
    queued_us bigint,
    started_us bigint,
    ended_us bigint,
    lease_until_us bigint not null,
    epoch bigint not null,
    version bigint not null
);
create index jobs_by_user on jobs (user_id, created_us, id) where removing = 0;
create index jobs_by_scope on jobs (scope, created_us, id) where removing = 0;
create index jobs_open on jobs (cluster_id, state, queued_us, id) where ended_us is null;
create index jobs_leases on jobs (state, lease_until_us) where ended_us is null;
create index jobs_ended on jobs (ended_us) where ended_us is not null;
create index jobs_removing on jobs (id) where removing = 1;
create index jobs_tearing on jobs (cluster_id) where teardown = 1;

create table job_nodes (
    job_id text not null,
    node bigint not null,
    instance_id text not null,
    boot bigint not null,
    log_offset bigint not null,
    ended bigint not null,
    primary key (job_id, node)
);
create index job_nodes_by_instance on job_nodes (instance_id);

-- What a job wrote, piece by piece. A piece without data is an object.
create table job_logs (
    job_id text not null,
    start bigint not null,
    length bigint not null,
    data bytea,
    primary key (job_id, start)
);
