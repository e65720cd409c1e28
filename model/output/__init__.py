"""Structure files and confidence scores of one prediction."""
