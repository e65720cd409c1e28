"""The part that the engines of `msa.cpu` and `msa.gpu` share: interface, statistics and scored batches."""
