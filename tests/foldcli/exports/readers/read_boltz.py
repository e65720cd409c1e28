"""A script that prints what Boltz reads of jobs, from a pickle of components and the paths of the jobs."""

import json
import pathlib
import pickle
import sys

from boltz.data.parse.csv import parse_csv
from boltz.data.parse.yaml import parse_yaml
from rdkit.Chem import AllChem, Descriptors

# Boltz finds the module there, where older releases of RDKit have it
AllChem.Descriptors = Descriptors


def main():
    components = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
    result = []
    for path in map(pathlib.Path, sys.argv[2:]):
        target = parse_yaml(path, components, pathlib.Path("absent"), boltz2=True)
        tables = {}
        for chain in target.record.chains:
            if chain.msa_id in (-1, 0):
                continue
            msa = parse_csv(pathlib.Path(chain.msa_id), max_seqs=8192)
            rows = [msa.residues["res_type"][each["res_start"] : each["res_end"]] for each in msa.sequences]
            tables[chain.chain_name] = {
                "keys": msa.sequences["taxonomy"].tolist(),
                "rows": [row.tolist() for row in rows],
            }
        bonds = sum(bool(bond["chain_1"] != bond["chain_2"]) for bond in target.structure.bonds)
        result.append(
            {
                "name": target.record.id, "chains": [chain.chain_name for chain in target.record.chains],
                "bonds": bonds, "tables": tables,
            }
        )  # fmt: skip
    json.dump(result, sys.stdout)


main()
