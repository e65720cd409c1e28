"""Ways to run work in threads and other processes."""
