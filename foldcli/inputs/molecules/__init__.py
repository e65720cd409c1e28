"""Jobs with any molecules, read from the files of several programs into one model."""
