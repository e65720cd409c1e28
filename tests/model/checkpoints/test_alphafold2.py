"""Tests of parameter files, errors about unusable ones, and random parameters."""

import ast
import re
import runpy
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import (
    MODEL_NAMES,
    MULTIMER_NAMES,
    ModelConfig,
    MultimerConfig,
    model_config,
)
from model.checkpoints.alphafold2 import build_network, check_npz, expected_shapes, load_npz
from model.checkpoints.deepmind import foreign_bytes, parameter_key, read_arrays
from model.errors import ParametersError, ParametersMissing

ROOT = "alphafold/alphafold_iteration"
KEY = f"{ROOT}/evoformer/preprocess_msa//weights"

Write = Callable[[dict[str, np.ndarray]], Path]


@pytest.fixture(scope="module")
def arrays(tiny_config: ModelConfig) -> dict[str, np.ndarray]:
    return random_parameters(tiny_config)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(arrays: dict[str, np.ndarray]) -> Path:
        np.savez(tmp_path / "params.npz", **arrays)  # type: ignore[arg-type]
        return tmp_path / "params.npz"

    return write


def test_load_npz_reads_all_arrays(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    read = load_npz(write(arrays), tiny_config)
    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[key], arrays[key]) and read[key].dtype == np.float32 for key in arrays)


def test_float64_arrays_are_converted_to_float32(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    read = load_npz(write(arrays | {KEY: arrays[KEY].astype(np.float64)}), tiny_config)
    assert read[KEY].dtype == np.float32 and np.array_equal(read[KEY], arrays[KEY])


def test_read_arrays_of_any_memory_order_and_compression(tmp_path: Path) -> None:
    arrays = {"a": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "b": np.float32(4), "c": np.zeros((0, 3))}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
        read = read_arrays(tmp_path / "a.npz")
        assert list(read) == list(arrays)
        for key, array in arrays.items():
            assert np.array_equal(read[key], array) and read[key].shape == np.shape(array)
            assert (
                read[key].dtype == np.float32 and read[key].flags.c_contiguous and read[key].flags.writeable
            )


def test_load_npz_accepts_another_reader(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    assert load_npz(write(arrays), tiny_config, lambda _: arrays) is arrays
    with pytest.raises(ParametersError, match="missing"):
        load_npz(write({KEY: arrays[KEY]}), tiny_config, lambda _: arrays)


def load_error(path: Path, config: ModelConfig) -> str:
    """Return the message of the error that loading a file raises."""
    with pytest.raises(ParametersError) as caught:
        load_npz(path, config)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    return text


def test_missing_keys_are_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    fewer = {key: array for key, array in arrays.items() if key != KEY}
    assert f"missing: {KEY}" in load_error(write(fewer), tiny_config)
    text = load_error(write({KEY: arrays[KEY]}), tiny_config)
    assert f"and {len(arrays) - 4} more" in text


def test_unknown_keys_are_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    text = load_error(write(arrays | {"alphafold/other//weights": arrays[KEY]}), tiny_config)
    assert "unknown: alphafold/other//weights" in text and "missing" not in text


def test_file_of_another_network_is_an_error(tmp_path: Path, write: Write) -> None:
    with_error = model_config("model_3_ptm").with_blocks(1, 1)
    text = load_error(write(random_parameters(with_error)), model_config("model_3").with_blocks(1, 1))
    assert "model_3:" in text and "unknown: " in text and "predicted_aligned_error_head" in text


def test_wrong_shapes_are_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    text = load_error(write(arrays | {KEY: arrays[KEY][:-1]}), tiny_config)
    channels = tiny_config.evoformer.msa.channels
    assert f"wrong shape: {KEY} is (48, {channels}) instead of (49, {channels})" in text
    deeper = random_parameters(tiny_config.with_blocks(3, 1))
    assert "is (3, " in load_error(write(deeper), tiny_config)


def test_integer_arrays_are_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    text = load_error(write(arrays | {KEY: arrays[KEY].astype(np.int32)}), tiny_config)
    assert f"not floating point: {KEY} (int32)" in text


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_infinities_and_nan_are_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write, value: float
) -> None:
    bad = arrays[KEY].copy()
    bad[3, 2] = value
    assert f"not finite: {KEY}" in load_error(write(arrays | {KEY: bad}), tiny_config)


def test_pickled_objects_are_not_loaded(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    path = write(arrays | {KEY: np.array([{"not": "numbers"}], dtype=object)})
    assert "not floating point" in load_error(path, tiny_config)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000)}", f"{KEY} has "),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", f"{KEY} has "),
        *((text, "damaged (") for text in (b"{" * 200, b"'x'", b"{[]: 1}", b"\xff" * 40, b"{'descr': '<f4'")),
    ],
)
def test_malformed_array_header_is_an_error(
    tiny_config: ModelConfig, tmp_path: Path, header: bytes, reason: str
) -> None:
    start = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / "params.npz", "w") as archive:
        archive.writestr(f"{KEY}.npy", start)
    assert reason in load_error(tmp_path / "params.npz", tiny_config)


def test_damaged_zip_directory_is_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    path = write(arrays)
    content = path.read_bytes()
    end = content.rindex(b"PK\5\6")
    # the directory's size, so that it starts before the file
    path.write_bytes(content[: end + 12] + b"\xff\xff\xff\x7f" + content[end + 16 :])
    assert "damaged" in load_error(path, tiny_config)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_array_that_occurs_twice_is_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    path = write(arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{KEY}.npy", archive.read(f"{KEY}.npy"))
    assert f"{KEY} occurs twice" in load_error(path, tiny_config)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_foreign_bytes_of_an_npz_file_are_counted(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "a.npz"
    save(path, a=np.zeros(1000), b=np.arange(7.0))
    assert foreign_bytes(path) == 0
    whole = path.read_bytes()
    directory = int.from_bytes(whole[-6:-2], "little")
    moved = (directory + 100).to_bytes(4, "little")
    before_directory = whole[:directory] + b"x" * 100 + whole[directory:-6] + moved + whole[-2:]
    for content in (b"x" * 100 + whole, before_directory, whole[:-2] + b"\x64\0" + b"x" * 100):
        path.write_bytes(content)
        assert read_arrays(path).keys() == {"a", "b"}
        assert foreign_bytes(path) == 100


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_truncated_file_is_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write, kept: float
) -> None:
    path = write(arrays)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    load_error(path, tiny_config)


def test_corrupt_file_is_an_error(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    path = write(arrays)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4] = b"\0\1\2\3"
    path.write_bytes(content)
    assert "damaged" in load_error(path, tiny_config)


def test_files_of_other_formats_are_an_error(tiny_config: ModelConfig, tmp_path: Path) -> None:
    path = tmp_path / "params.npz"
    path.write_text("not parameters")
    assert "not an npz file" in load_error(path, tiny_config)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    assert "not an npz file" in load_error(path, tiny_config)


def test_missing_file_names_the_remedy(tiny_config: ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(ParametersMissing) as caught:
        load_npz(tmp_path / "params.npz", tiny_config)
    assert "params_tiny.npz" in caught.value.remedy and "no such file" in caught.value.reason


def test_parameter_counts_of_published_networks() -> None:
    sizes = {name: expected_shapes(model_config(name)) for name in MODEL_NAMES}
    counts = {name: (len(s), sum(int(np.prod(shape)) for shape in s.values())) for name, s in sizes.items()}
    error_head = 128 * 64 + 64
    for name, count in counts.items():
        arrays, numbers = (338, 93237338) if name[6] in "12" else (267, 92907930)
        has_error = name.endswith("_ptm")
        assert count == ((arrays, numbers) if has_error else (arrays - 2, numbers - error_head)), name


def test_parameter_counts_of_multimer_networks() -> None:
    # the older versions store four arrays more for each of two triangle multiplications in three stacks
    for name in MULTIMER_NAMES:
        arrays = 330 if name.endswith("_v3") else 330 + 3 * 2 * 4
        shapes = expected_shapes(model_config(name))
        assert (len(shapes), sum(int(np.prod(shape)) for shape in shapes.values())) == (arrays, 93223705)


def test_keys_and_shapes_of_published_networks(shared_dir: Path) -> None:
    files = sorted((shared_dir / "parity" / "names").glob("params_model_*.txt"))
    assert len(files) == 6
    for file in files:
        lines = [line.split("\t") for line in file.read_text().splitlines() if line and line[0] != "#"]
        published = {key: ast.literal_eval(shape) for key, shape in lines}
        assert expected_shapes(model_config(file.stem.removeprefix("params_"))) == published


def test_only_readers_know_the_names_in_the_files(root: Path) -> None:
    published = re.compile(
        r"alphafold_iteration|//weights|\b(query|key|value|gating|output)_[wb]\b|feat_2d|activiations"
    )
    files = [path for path in (root / "model").rglob("*.py") if "checkpoints" not in path.parts]
    assert len(files) > 50
    assert [path.name for path in files if published.search(path.read_text())] == []


def test_parameter_keys() -> None:
    assert parameter_key("evoformer.input_embedding.preprocess_msa.weights") == (KEY, None, None)
    stack = "template_pair_stack/__layer_stack_no_state/pair_transition/transition1"
    name = "evoformer.template_embedding.single_template_embedding.template_pair_stack.1.pair_transition"
    assert parameter_key(f"{name}.transition1.bias") == (
        f"{ROOT}/evoformer/template_embedding/single_template_embedding/{stack}//bias",
        1,
        None,
    )
    assert parameter_key("heads.distogram_head.half_logits.bias") == (
        f"{ROOT}/distogram_head/half_logits//bias",
        None,
        None,
    )


def test_multimer_parameter_keys() -> None:
    name = "evoformer.evoformer_iteration.3.triangle_multiplication_incoming"
    key = f"{ROOT}/evoformer/evoformer_iteration/triangle_multiplication_incoming"
    for layer, published, half in (
        ("layer_norm_input.scale", "left_norm_input//scale", None),
        ("left_projection.weights", "projection//weights", 0),
        ("right_gate.bias", "gate//bias", 1),
        ("gating_linear.bias", "gating_linear//bias", None),
    ):
        assert parameter_key(f"{name}.{layer}", MultimerConfig()) == (f"{key}/{published}", 3, half)
    outer = "evoformer.extra_msa_stack.0.outer_product_mean.layer_norm_input.scale"
    assert parameter_key(outer, MultimerConfig()) == parameter_key(outer)


def test_halves_of_fused_arrays_become_layers(tiny_multimer_config: ModelConfig) -> None:
    arrays = random_parameters(tiny_multimer_config)
    network = build_network(tiny_multimer_config, arrays)
    scope = f"{ROOT}/evoformer/evoformer_iteration/triangle_multiplication_outgoing"
    layer = network.get_submodule("evoformer.evoformer_iteration.1.triangle_multiplication_outgoing")
    for published in ("projection", "gate"):
        for name in ("weights", "bias"):
            halves = [layer.get_parameter(f"{side}_{published}.{name}") for side in ("left", "right")]
            assert all(half.is_contiguous() for half in halves)
            joined = np.concatenate([half.numpy() for half in halves], axis=-1)
            assert np.array_equal(joined, arrays[f"{scope}/{published}//{name}"][1])


def test_older_multimer_files_have_the_same_layers(tiny_multimer_config: ModelConfig) -> None:
    arrays = random_parameters(tiny_multimer_config)
    names = {"left_norm_input": "layer_norm_input", "center_norm": "center_layer_norm"}
    older = {}
    for key, array in arrays.items():
        scope, name = key.split("//")
        parent, layer = scope.rsplit("/", 1)
        if "triangle_multiplication" in parent and layer in ("projection", "gate"):
            for side, half in zip(("left", "right"), np.split(array, 2, axis=-1), strict=True):
                older[f"{parent}/{side}_{layer}//{name}"] = half
        elif "triangle_multiplication" in parent:
            older[f"{parent}/{names.get(layer, layer)}//{name}"] = array
        else:
            older[key] = array
    assert tiny_multimer_config.multimer is not None
    multimer = replace(tiny_multimer_config.multimer, joined_projections=False)
    config = replace(tiny_multimer_config, multimer=multimer)
    assert {key: array.shape for key, array in older.items()} == dict(expected_shapes(config))
    expected = build_network(tiny_multimer_config, arrays).state_dict()
    found = build_network(config, older).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_random_parameters_depend_only_on_seed_and_key(tiny_config: ModelConfig) -> None:
    shallow = random_parameters(tiny_config.with_blocks(1, 1), seed=5)
    deep = random_parameters(tiny_config.with_blocks(3, 1), seed=5)
    assert shallow.keys() == deep.keys()
    for key, array in shallow.items():
        same = deep[key][:1] if "/evoformer_iteration/" in key else deep[key]
        assert np.array_equal(array, same), key
    other = random_parameters(tiny_config.with_blocks(1, 1), seed=6)
    assert not any(np.array_equal(other[key], array) for key, array in shallow.items())


@pytest.mark.parametrize("name", ["model_1_ptm", "model_1_multimer_v3"])
def test_random_parameters_equal_those_of_the_parity_sets(
    name: str, shared_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = shared_dir / "parity", tmp_path / "params.npz"
    names = str(folder / "names" / f"params_{name}.txt")
    blocks = ["--evoformer-blocks", "1", "--extra-blocks", "1"]
    monkeypatch.setattr(sys, "argv", ["make_params.py", names, str(path), *blocks])
    runpy.run_path(str(folder / "make_params.py"), run_name="__main__")
    config = model_config(name).with_blocks(1, 1)
    drawn, read = random_parameters(config), load_npz(path, config)
    assert all(np.array_equal(drawn[key], array) for key, array in read.items())


def test_check_npz_detects_problems_and_identifies_content(
    arrays: dict[str, np.ndarray], tiny_config: ModelConfig, write: Write
) -> None:
    first = check_npz(write(arrays), tiny_config)
    assert check_npz(write(arrays), tiny_config) == first
    assert check_npz(write(arrays | {KEY: arrays[KEY] + 1}), tiny_config) != first
    with pytest.raises(ParametersError, match="wrong shape"):
        check_npz(write(arrays | {KEY: arrays[KEY][:-1]}), tiny_config)
