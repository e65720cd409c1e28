"""Files of predictions: structures as PDB and mmCIF, scores as JSON."""
