"""The operator, without a cluster: resources, schemas, and what is done about a job."""
