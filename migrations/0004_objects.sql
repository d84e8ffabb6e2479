-- Object storage: accounts of organizations, buckets, objects with their versions, and uploads in parts.

-- The secret of an access key is not kept: it follows from the master key.
create table accounts (
    org_id text primary key,
    access_key text not null unique,
    closing bigint not null,
    bytes bigint not null,
    objects bigint not null,
    requests bigint not null,
    created_us bigint not null
);

create table buckets (
    id text primary key,
    org_id text not null,
    name text not null,
    versioning text not null,
    created_us bigint not null
);
create unique index buckets_by_name on buckets (org_id, name);

-- What is seen without asking for a version: one row a key. Small bodies lie in "data", the others in the parts of their
-- content. A version without an id is the one that S3 calls "null".
create table objects (
    bucket_id text not null,
    key text not null,
    version_id text,
    sequence bigint not null,
    modified_us bigint not null,
    size bigint not null,
    etag text not null,
    content_id text,
    details text not null,
    data bytea,
    primary key (bucket_id, key)
);

-- Versions that were overwritten, and the marks of deletions; those have no ETag.
create table versions (
    bucket_id text not null,
    key text not null,
    version_id text,
    sequence bigint not null,
    modified_us bigint not null,
    size bigint not null,
    etag text,
    content_id text,
    details text not null,
    data bytea
);
create unique index versions_by_key on versions (bucket_id, key, sequence desc);

create table uploads (
    id text primary key,
    bucket_id text not null,
    key text not null,
    details text not null,
    algorithm text,
    checksum_scope text,
    created_us bigint not null
);
create index uploads_by_key on uploads (bucket_id, key, id);
create index uploads_by_age on uploads (created_us);

-- The files of contents. Which files are needed is decided here and nowhere else.
create table parts (
    content_id text not null,
    number bigint not null,
    file_id text not null unique,
    size bigint not null,
    etag text not null,
    checksum text,
    modified_us bigint not null,
    primary key (content_id, number)
);
