"""The molecules of a job as atoms, tokens and bonds."""
