"""A search server that keeps a database loaded, and its client; see docs/serve.md."""
