-- Access keys of object storage belong to a user, and open the object storage of one organization. Their secrets are not kept: they
-- follow from the master key. A key no longer works from "ends_us" on.
create table s3_keys (
    access_key text primary key,
    user_id text not null,
    org_id text not null,
    name text not null,
    created_us bigint not null,
    last_used_us bigint,
    ends_us bigint
);
create index s3_keys_by_user on s3_keys (user_id, org_id, created_us, access_key);
create index s3_keys_by_org on s3_keys (org_id, created_us, access_key);
create index s3_keys_by_end on s3_keys (ends_us);

-- The key that all members of an organization shared before. It works until it is retired; newer organizations have none, and
-- "access_key" is no longer read: it has the id of the organization in new rows.
alter table accounts add column legacy_key text;
alter table accounts add column legacy_used_us bigint;
update accounts set legacy_key = access_key where org_id <> 'o-000000000000';
create unique index accounts_by_legacy_key on accounts (legacy_key);
