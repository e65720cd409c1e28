"""Cached inputs of the all-atom network: the same sample back, keys by content, damage noticed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.alphafold3.alignments import AlignmentLimits
from features.alphafold3.inputs import InputSettings, Sample, build_sample
from features.alphafold3.samples import load_sample, read_sample, sample_key, sample_path, write_sample
from features.alphafold3.templates import TokenTemplates
from features.assembly.job import MoleculeJob, Polymer
from features.assembly.job_json import job_of_json, job_to_json
from features.cache.entry import CorruptEntryError
from features.chemistry.residue_classes import MoleculeKind
from msa.alignments.files import parse_alignment
from msa.base.network_inputs import ALL_ATOM
from tests.features.alphafold3.query_jobs import read_jobs

NAMES = ("paired_dimer", "glycoprotein", "ions", "modified_residues", "covalent_inhibitor")


def check_equal(first: Sample, second: Sample) -> None:
    for name in ALL_ATOM:
        assert first.features[name].dtype == second.features[name].dtype, name
        np.testing.assert_array_equal(first.features[name], second.features[name], err_msg=name)
    for name in ("chain", "residue", "code", "name", "element", "molecule", "kind", "bonds"):
        np.testing.assert_array_equal(getattr(first.atoms, name), getattr(second.atoms, name))
    for name in ("start", "count", "atom_token", "is_atomized", "entity", "copy", "chain", "bonds"):
        np.testing.assert_array_equal(getattr(first.tokens, name), getattr(second.tokens, name))
    for one, other in zip(first.conformers, second.conformers, strict=True):
        assert one.source == other.source
        for name in ("positions", "mask", "charges"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("name", NAMES)
def test_entries_give_the_same_sample(name: str, tmp_path: Path) -> None:
    job = read_jobs()[name]
    sample = build_sample(job, InputSettings(seed=3))
    key = sample_key(job, InputSettings(seed=3))
    assert load_sample(tmp_path, key) is None
    path = write_sample(tmp_path, key, job, sample)
    assert path == sample_path(tmp_path, key)
    first = path.read_bytes()
    check_equal(read_sample(path, key), sample)
    assert load_sample(tmp_path, key) is not None
    assert write_sample(tmp_path, key, job, sample).read_bytes() == first


def template_rows(tokens: int) -> TokenTemplates:
    source = np.random.default_rng(1)
    beta = source.normal(scale=9, size=(4, tokens, 3))
    beta[1:] = np.nan
    frames = source.normal(scale=9, size=(4, tokens, 3, 3))
    frames[2:] = np.nan
    return TokenTemplates(source.integers(0, 32, (4, tokens)), beta, frames)


def test_templates_and_deletions_are_kept(tmp_path: Path) -> None:
    rows = "".join(f">{n}\nM{'a' * n}KV\n" for n in (1, 2, 3, 50, 300, 70_000))
    alignment = parse_alignment(f">q\nMKV\n{rows}".encode())
    job = MoleculeJob("job", (Polymer(MoleculeKind.PROTEIN, "MKV", ("A",), alignment=alignment),))
    templates = template_rows(3)
    sample = build_sample(job, InputSettings(), templates)
    path = write_sample(tmp_path, sample_key(job, InputSettings(), templates), job, sample)
    check_equal(read_sample(path), sample)


def test_molecules_survive_json() -> None:
    for job in read_jobs().values():
        content = job_to_json(job)
        assert job_to_json(job_of_json(content)) == content


def test_keys_depend_on_content_alone() -> None:
    alignment = parse_alignment(b">q\nMKV\n>a\nMRV\n")
    polymer = Polymer(MoleculeKind.PROTEIN, "MKV", ("A",), alignment=alignment, line=3)
    job, settings = MoleculeJob("job", (polymer,), path="x.json", line=2), InputSettings()
    key = sample_key(job, settings)
    renamed = parse_alignment(b">other\nMKV\n>b\nMRV\n", "y.a3m")
    same = MoleculeJob("other", (replace(polymer, alignment=renamed, line=None),))
    assert sample_key(same, replace(settings, max_tokens=9)) == key
    others = [
        sample_key(replace(job, entities=(replace(polymer, alignment=None, paired=alignment),)), settings),
        sample_key(replace(job, entities=(replace(polymer, alignment=None),)), settings),
        sample_key(replace(job, entities=(replace(polymer, chains=("A", "B")),)), settings),
        sample_key(job, replace(settings, seed=1)),
        sample_key(job, replace(settings, chiral_residues=False)),
        sample_key(job, replace(settings, limits=AlignmentLimits(rows=9))),
        sample_key(job, settings, template_rows(3)),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_damage_is_noticed(tmp_path: Path) -> None:
    job = read_jobs()["ions"]
    key = sample_key(job, InputSettings())
    path = write_sample(tmp_path, key, job, build_sample(job, InputSettings()))
    content = path.read_bytes()
    with pytest.raises(CorruptEntryError, match="different key"):
        read_sample(path, "00")
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:100], b"", content[8:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptEntryError, match=str(path)):
            read_sample(path, key)
