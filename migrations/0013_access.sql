-- Who created a bucket. Null in older rows, and where the S3 key stands for a whole organization: then the administrators decide.
alter table buckets add column creator_id text;
