"""Parts of AlphaFold-Multimer's network that differ from the monomer network's."""
