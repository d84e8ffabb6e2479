-- The oldest requests of a scope that have ended are found without reading those that have not, of which there may be many more.
create index requests_ended_by_scope on requests (scope, created_us, id) where ended_us is not null;
