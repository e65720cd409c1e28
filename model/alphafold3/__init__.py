"""The all-atom network of AlphaFold 3, as OpenFold3 trained it."""
