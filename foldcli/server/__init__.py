"""A resident search: a database and its engine behind a unix socket; docs/serve.md."""
