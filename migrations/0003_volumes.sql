-- Real volumes: one that failed with its data may come right again, and a request tells what it did on its way.

-- Of what failed before this, only parts are left.
alter table volumes add column has_data bigint not null default 0;

alter table requests add column note text;
