"""Files, checks and contacts of predictions of any molecules."""
