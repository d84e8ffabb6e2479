-- How much an organization, or a user without one, may have; null is what the configuration says.
create table limits (
    scope text primary key,
    instances bigint,
    cpu_milli bigint,
    gpus bigint,
    volume_gb bigint,
    object_bytes bigint,
    changed_us bigint not null
);
