-- The loops of the engine read what holds something or is due, and nothing that waits or has ended. Each of these indexes serves a
-- loop, or a list, that no other index serves. Most have few rows, because what waits or has ended is not in them. A column whose
-- value is the same in all rows of an index makes SQLite prefer it to one that begins with the same column.

-- Instances that may exist: those that hold capacity.
create index instances_holding_by_id on instances (holds_capacity, id) where holds_capacity = 1;
create index instances_holding_by_cluster on instances (holds_capacity, cluster_id) where holds_capacity = 1;
create index instances_holding_gpus on instances (holds_capacity, gpus, id, cluster_id) where holds_capacity = 1 and gpus <> '';
-- Volumes of which something may exist, with what is promised to them.
create index volumes_remaining on volumes (remains, id, size_gb, to_gb) where remains = 1;

-- After a reboot of the host: clusters that are being restarted, and those that cannot be.
create index requests_coming_back on requests (type, due_us) where ended_us is null and type = 'CLUSTER_RESTART' and note is not null;
create index clusters_failed on clusters (id) where state = 'FAILED';

-- Jobs that wait, by the cluster that they wait for; drafts, by their age; and jobs after which a cluster is to be destroyed.
create index jobs_waiting on jobs (state, cluster_id, queued_us, id) where ended_us is null and state = 'PENDING';
create index jobs_drafts on jobs (state, since_us) where ended_us is null and state = 'DRAFT';
create index jobs_to_tear_down on jobs (id) where teardown = 1 and ended_us is not null;

-- Object storage that is being emptied, and rules for the life of objects by when they are due.
create index accounts_closing on accounts (org_id) where closing = 1;
create index lifecycle_passes_by_due on lifecycle_passes (due_us);

-- The API keys of a user.
create index api_keys_by_user on api_keys (user_id, created_us, id);
