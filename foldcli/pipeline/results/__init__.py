"""Results of targets: files, pages, relaxation."""
