-- Real machines: which key opens which cluster is asked at every login, and an installation knows its own secret again.

create index ssh_keys_by_fingerprint on ssh_keys (fingerprint);

-- The fingerprints of the keys in cluster_keys. Rows for keys that were given before are added when the store is opened.
create table cluster_fingerprints (
    fingerprint text not null,
    cluster_id text not null,
    primary key (fingerprint, cluster_id)
);
create index cluster_fingerprints_by_cluster on cluster_fingerprints (cluster_id);

-- What is true of the whole installation and is written once.
create table installation (
    key text primary key,
    value text not null
);
