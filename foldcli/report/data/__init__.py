"""The data of report pages, read from results."""
