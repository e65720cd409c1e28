"""From the inputs and outputs of an all-atom network to the files of its predictions."""
