"""Command-line options shared by subcommands."""
