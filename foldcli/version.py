"""The version of foldcli; pyproject.toml and every other user read it here."""

VERSION = "0.1.0"
