"""The part that the engines of `msa.cpu` and `msa.gpu` share: interface, settings, statistics and hits."""
