"""Files of queries and jobs as values: JSON and YAML with line numbers, the fields of jobs, tables."""
