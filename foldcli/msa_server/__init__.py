"""A search server that speaks the protocol of ColabFold's MSA server; see docs/serve.md."""
