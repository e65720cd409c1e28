"""Libraries of chains of known structure."""
