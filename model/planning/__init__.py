"""Plans of a prediction: its memory, and the kernels that it launches."""
