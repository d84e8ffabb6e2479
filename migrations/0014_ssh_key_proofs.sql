-- In which organizations, or for which users without one, the holder of an SSH key has logged in to an instance. Any user can save any public
-- key, so only this tells whose clusters a name means. Rows outlive the saved key: its name must not lead elsewhere afterwards.
create table ssh_key_proofs (
    fingerprint text not null,
    scope text not null,
    proven_us bigint not null,
    primary key (fingerprint, scope)
);
