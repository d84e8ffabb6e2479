-- The capacity queue. Claims of one organization that need the same have the same line_key: only the oldest of them has to be examined.
alter table requests add column line_key text;
-- When a claim was first examined and did not fit.
alter table requests add column examined_us bigint;
-- When a claim entered the line or last began to reserve capacity, and until when it reserves.
alter table requests add column turn_us bigint not null default 0;
alter table requests add column reserved_until_us bigint not null default 0;

update requests set turn_us = created_us, examined_us = created_us, line_key = (
    select requests.scope || ' ' || cast(c.num_nodes as text) || 'x' || cast(i.cpu_milli as text) || '/' ||
           cast(i.memory_bytes as text) || '/' || cast(i.gpu_count as text) || '/' || coalesce(i.gpu_model, '')
    from clusters c join instances i on i.cluster_id = c.id and i.node = 0 where c.id = requests.cluster_id)
where waiting = 1;

create index requests_line on requests (line_key, created_us, id) where waiting = 1;
create index requests_turns on requests (scope, turn_us, id) where waiting = 1;
create index requests_reserving on requests (reserved_until_us) where waiting = 1 and reserved_until_us > 0;
create index instances_releasing on instances (cpu_milli, memory_bytes, gpus) where holds_capacity = 1 and state = 'DESTROYING';

-- When a claim of an organization, or of a user without one, last began to reserve, and until when none does so again.
create table line_turns (
    scope text primary key,
    reserved_us bigint not null,
    paused_until_us bigint not null
);

alter table limits add column waiting bigint;
