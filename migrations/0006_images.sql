-- Container images: the exact name of what the nodes of a cluster run, and how far the fetching of it is.

alter table clusters add column image text;

alter table requests add column progress text;

-- A claim has a step more, the second one: those that are under way behind it go on where they were.
update requests set step = step + 1 where type = 'CLUSTER_CLAIM' and ended_us is null and step >= 2;
