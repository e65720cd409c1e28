"""Writers of search results: m8 tables, A3M and Stockholm alignments."""
