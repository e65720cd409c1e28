"""Structure files and confidence scores of a prediction."""
