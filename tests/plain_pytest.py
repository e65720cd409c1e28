"""Options of a pytest process that a test starts: without pyproject.toml's selection and parallel workers."""

PLAIN_OPTIONS = ("-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib --strict-markers")
