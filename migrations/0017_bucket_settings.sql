-- Settings of buckets: tags, rules for browsers, and rules for the life of objects. One row a bucket and kind.
create table bucket_settings (
    bucket_id text not null,
    kind text not null,
    value text not null,
    primary key (bucket_id, kind)
);

-- How far the rules for the life of objects were applied: one row for each bucket that has such rules. "position" says
-- where to continue; a row whose time has not come waits.
create table lifecycle_passes (
    bucket_id text primary key,
    org_id text not null,
    due_us bigint not null,
    position text not null
);
create index lifecycle_passes_by_org on lifecycle_passes (org_id, due_us);

-- The preflight of a browser names a bucket, but no key and so no organization.
create index buckets_by_plain_name on buckets (name);
