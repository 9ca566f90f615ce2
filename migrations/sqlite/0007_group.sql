-- The members of a group that neither wait behind others nor have a place nor keep others back:
-- those enqueued for later, finished ones, and dead ones that were passed. With this index all
-- jobs of a group are found.
CREATE INDEX errand_option_rest ON errand_option (group_key) WHERE role = 0 AND group_key IS NOT NULL;
