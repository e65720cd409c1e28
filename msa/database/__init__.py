"""The target database: format, build, sorting, masking and clusters."""
