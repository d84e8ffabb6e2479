-- GPUs as they were seen last, whether they are offered, and whether the host takes on anything new.

create table gpus (
    id text primary key,
    model text not null,
    simulated bigint not null,
    memory_bytes bigint not null,
    driver_version text,
    cuda_version text,
    bus_id text,
    parent text,
    health text not null,
    reason text,
    since_us bigint,
    cleared_us bigint,
    drain_reason text,
    drained_us bigint,
    -- Why it is not offered, in words; null while it is.
    withheld text
);

-- The host is one row, and only while it is drained.
create table host_drains (
    host text primary key,
    reason text,
    since_us bigint not null
);
