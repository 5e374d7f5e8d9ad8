"""The queue's store in a table of DynamoDB: one item for each request."""
