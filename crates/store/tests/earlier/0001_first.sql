-- The spine: who there is, what there is, what is being done, what happened, and the ledger.
-- One text for SQLite and PostgreSQL: text, bigint and bytea only; ids are text, times microseconds, money micro-dollars.

create table organizations (
    id text primary key,
    name text not null unique,
    created_us bigint not null
);

create table users (
    id text primary key,
    email text not null unique,
    org_id text,
    org_admin bigint not null,
    engine_admin bigint not null,
    disabled bigint not null,
    preferences text,
    created_us bigint not null
);
create index users_by_org on users (org_id, created_us, id);
create index users_by_age on users (created_us, id);

-- Only the hash of a key is kept.
create table api_keys (
    id text primary key,
    hash bytea not null unique,
    user_id text not null,
    created_us bigint not null,
    revoked_us bigint
);
create index api_keys_by_age on api_keys (created_us, id);

create table ssh_keys (
    id text primary key,
    user_id text not null,
    org_id text,
    scope text not null,
    name text not null,
    public_key text not null,
    fingerprint text not null,
    created_us bigint not null
);
create unique index ssh_keys_once on ssh_keys (user_id, fingerprint);
create index ssh_keys_by_scope on ssh_keys (scope, created_us, id);

-- "scope" is the organization, or the user without one: names are unique and money is shared within it.
create table clusters (
    id text primary key,
    scope text not null,
    name text not null,
    user_id text not null,
    org_id text,
    instance_type text not null,
    num_nodes bigint not null,
    hourly_rate_micros bigint not null,
    container text,
    deletion_protection bigint not null,
    state text not null,
    reason text,
    since_us bigint not null,
    created_us bigint not null,
    version bigint not null
);
create unique index clusters_by_name on clusters (scope, name) where state <> 'DESTROYED';
create index clusters_by_user on clusters (user_id, created_us, id) where state <> 'DESTROYED';
create index clusters_live on clusters (scope, created_us, id) where state <> 'DESTROYED';
create index clusters_by_scope on clusters (scope, created_us, id);

-- The keys that were given when the cluster was created, besides the saved ones.
create table cluster_keys (
    cluster_id text primary key,
    public_keys text not null
);

create table instances (
    id text primary key,
    cluster_id text not null,
    node bigint not null,
    state text not null,
    reason text,
    cpu_milli bigint not null,
    memory_bytes bigint not null,
    gpu_count bigint not null,
    gpu_model text,
    gpus text not null,
    holds_capacity bigint not null,
    boot bigint not null,
    private_ip text
);
create unique index instances_by_cluster on instances (cluster_id, node);
create index instances_holding on instances (holds_capacity, cpu_milli, memory_bytes, gpus) where holds_capacity = 1;

create table volumes (
    id text primary key,
    scope text not null,
    name text not null,
    user_id text not null,
    org_id text,
    size_gb bigint not null,
    first_size_gb bigint not null,
    to_gb bigint,
    deletion_protection bigint not null,
    state text not null,
    reason text,
    since_us bigint not null,
    created_us bigint not null,
    version bigint not null
);
create unique index volumes_by_name on volumes (scope, name) where state <> 'DESTROYED';
create index volumes_by_user on volumes (user_id, created_us, id) where state <> 'DESTROYED';
create index volumes_live on volumes (scope, created_us, id) where state <> 'DESTROYED';
create index volumes_by_scope on volumes (scope, created_us, id);

-- A cluster has at most one volume; the primary key says so.
create table attachments (
    cluster_id text primary key,
    volume_id text not null,
    state text not null,
    live bigint not null,
    since_us bigint not null
);
create index attachments_by_volume on attachments (volume_id, since_us);

-- A request is the durable workflow: the API shows this row and the runner leases it.
create table requests (
    id text primary key,
    type text not null,
    status text not null,
    user_id text not null,
    org_id text,
    scope text not null,
    cluster_id text,
    volume_id text,
    waiting bigint not null,
    step bigint not null,
    failure text,
    attempts bigint not null,
    due_us bigint not null,
    deadline_us bigint not null,
    lease_until_us bigint not null,
    epoch bigint not null,
    message text,
    created_us bigint not null,
    ended_us bigint
);
create index requests_due on requests (due_us, id) where ended_us is null;
create index requests_waiting on requests (created_us, id) where waiting = 1;
create index requests_by_user on requests (user_id, created_us, id);
create index requests_by_scope on requests (scope, created_us, id);
create index requests_by_cluster on requests (cluster_id, created_us, id);
create index requests_by_volume on requests (volume_id, created_us, id);

-- Append-only: who did what to which object, when.
create table events (
    number bigint primary key,
    at_us bigint not null,
    actor text not null,
    scope text not null,
    object text not null,
    verb text not null,
    detail text not null
);

-- Append-only, double entry: the entries of a transaction sum to zero.
create table ledger_transactions (
    id text primary key,
    at_us bigint not null,
    actor text not null,
    description text not null
);
create table ledger_entries (
    transaction_id text not null,
    line bigint not null,
    account text not null,
    amount_micros bigint not null,
    primary key (transaction_id, line)
);
create index ledger_entries_by_account on ledger_entries (account, amount_micros);

create table idempotency (
    user_id text not null,
    key text not null,
    fingerprint bytea not null,
    outcome bytea not null,
    created_us bigint not null,
    primary key (user_id, key)
);
create index idempotency_by_age on idempotency (created_us);
