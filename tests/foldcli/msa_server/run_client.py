"""A script for the Python of another program: its client gets alignments from a server, printed as JSON.

python run_client.py PROGRAM URL FOLDER SEQUENCE...
"""

import importlib.util
import json
import sys
from pathlib import Path


def single_and_paired(run, folder, sequences, **arguments):
    """Return the alignments of the sequences and their paired rows."""
    return {
        "single": run(sequences, str(folder / "single"), **arguments),
        "paired": run(sequences, str(folder / "paired"), use_pairing=True, **arguments),
    }


def colabfold(url, folder, sequences):
    from colabfold.colabfold import run_mmseqs2

    found = single_and_paired(run_mmseqs2, folder, sequences, host_url=url, user_agent="test")
    _, paths = run_mmseqs2(
        sequences, str(folder / "templates"), use_templates=True, host_url=url, user_agent="test"
    )
    found["templates"] = sorted(path.name for path in Path(paths[0]).glob("*.cif"))
    return found


def boltz(url, folder, sequences):
    from boltz.data.msa.mmseqs2 import run_mmseqs2

    # what it sends with --api_key_value
    headers = {"Content-Type": "application/json", "X-API-Key": "secret"}
    run_mmseqs2(sequences, str(folder / "key"), host_url=url, auth_headers=headers)
    return single_and_paired(run_mmseqs2, folder, sequences, host_url=url)


def openfold3(url, folder, sequences):
    from openfold3.core.data.tools.colabfold_msa_server import query_colabfold_msa_server

    return single_and_paired(
        query_colabfold_msa_server, folder, sequences, user_agent="test", host_url=url + "/"
    )


def chai(url, folder, sequences):
    from chai_lab.data.dataset.msas.colabfold import generate_colabfold_msas

    for name in ("msas", "one"):
        (folder / name).mkdir()
    generate_colabfold_msas(sequences, folder / "msas", url, write_a3m_to_msa_dir=True)
    generate_colabfold_msas(sequences[:1], folder / "one", url)
    files = {path.name: path.read_text() for path in (folder / "msas" / "a3ms").iterdir()}
    order = [next(name for name in files if files[name].startswith(f">{101 + n}\n{s}\n")) for n, s in
             enumerate(sequences)]  # fmt: skip
    keys = [name.split(".")[0] for name in order]
    return {
        "single": [files[f"{key}.single.a3m"] for key in keys],
        "paired": [files[f"{key}.pair.a3m"] for key in keys],
    }


def alphafold3(url, folder, sequences):
    # the package itself needs other libraries than its client
    path = next(
        Path(each) / "alphafold3/data/msa_server.py" for each in sys.path if Path(each, "alphafold3").is_dir()
    )
    specification = importlib.util.spec_from_file_location("msa_server", path)
    module = sys.modules["msa_server"] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    hits = {}
    found = {
        "single": module._query_server(sequences, host_url=url, template_hits=hits),
        "paired": module._query_server(sequences, use_pairing=True, host_url=url),
    }
    names = hits[sequences[0]]
    assert all(module.fetch_template(name, host_url=url).startswith("data_") for name in names)
    found["templates"] = sorted(f"{name.split('_')[0]}.cif" for name in names)
    return found


def protenix(url, folder, sequences):
    from protenix.web_service.colab_request_utils import run_mmseqs2_service

    query = "".join(f">query_{number}\n{sequence}\n" for number, sequence in enumerate(sequences))
    options = {"host_url": url, "server_mode": "colabfold"}
    for number, sequence in enumerate(sequences):
        run_mmseqs2_service(f">query_{number}\n{sequence}", str(folder / str(number)), **options)
    run_mmseqs2_service(
        query.rstrip(), str(folder / "paired"), use_pairing=True, pairing_strategy="greedy", **options
    )
    numbers = range(len(sequences))
    return {
        "single": [(folder / f"{n}/{n}/non_pairing.a3m").read_text() for n in numbers],
        "paired": [(folder / f"paired/{n}/pairing.a3m").read_text() for n in numbers],
    }


if __name__ == "__main__":
    program, url, folder, *sequences = sys.argv[1:]
    print(json.dumps(globals()[program](url, Path(folder), sequences)))
