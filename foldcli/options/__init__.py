"""Declarations of command-line options that several subcommands share."""
