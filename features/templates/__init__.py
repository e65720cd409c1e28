"""Templates: structure files, the structure library, template search and template features."""
