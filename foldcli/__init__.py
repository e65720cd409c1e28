"""The command line of foldcli: from a protein sequence to a predicted structure."""
