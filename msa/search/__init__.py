"""Single and iterated searches, their hits, and the alignment filter."""
