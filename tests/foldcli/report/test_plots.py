"""The PNG plots, made without changing matplotlib's global state."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from foldcli.report import ReportSettings
from foldcli.report.data import page_data
from foldcli.report.data.alignment import read_alignment_summary
from foldcli.report.data.result import read_result
from foldcli.report.make import make_report
from foldcli.report.plots import write_plots
from tests.foldcli.report.results import target_files, write_result

PLOTS_ONLY = ReportSettings(page=False, plots=True)
KINDS = ("coverage", "pae", "plddt", "thumbnail")


def pixels(path: Path) -> np.ndarray:
    """Return a PNG as floats [height, width, 4]."""
    from matplotlib.image import imread

    return imread(path)


def plots(folder: Path, name: str = "target") -> dict[str, bytes]:
    return {path.name[len(name) + 1 : -4]: path.read_bytes() for path in folder.glob(f"{name}_*.png")}


@pytest.mark.slow
def test_plots_have_colabfolds_names_and_reproducible_bytes(tmp_path: Path) -> None:
    folder = write_result(tmp_path)
    written = make_report(target_files(folder), {}, PLOTS_ONLY)
    assert sorted(path.name for path in written) == [f"target_{kind}.png" for kind in KINDS]
    assert not (folder / "target.html").exists()
    first = plots(folder)
    make_report(target_files(folder), {}, PLOTS_ONLY)
    assert plots(folder) == first
    # no plot is blank
    for path in written:
        assert len(np.unique(pixels(path).reshape(-1, 4), axis=0)) > 20


def test_user_settings_of_matplotlib_have_no_effect_and_are_restored(tmp_path: Path) -> None:
    plain = write_result(tmp_path / "plain")
    make_report(target_files(plain), {}, PLOTS_ONLY)
    styled = write_result(tmp_path / "styled")
    with matplotlib.rc_context({"text.usetex": True, "axes.facecolor": "red", "font.size": 30}):
        make_report(target_files(styled), {}, PLOTS_ONLY)
        assert matplotlib.rcParams["font.size"] == 30
    assert plots(styled) == plots(plain)


def test_pyplot_is_not_used(tmp_path: Path) -> None:
    folder = write_result(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from foldcli.report import ReportSettings; from foldcli.report.make import make_report\n"
        "from foldcli.outputs.layout import TargetFiles\n"
        f"files = TargetFiles('target', Path({str(folder)!r}), 'single_folder')\n"
        "written = make_report(files, {}, ReportSettings())\n"
        "print(len(written), *[name in sys.modules for name in ('matplotlib.pyplot', 'IPython', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5", "False", "False", "False"]


def test_plots_without_pae_and_alignment(tmp_path: Path) -> None:
    folder = write_result(tmp_path, pae=False)
    (folder / "target.a3m").unlink()
    make_report(target_files(folder), {}, PLOTS_ONLY)
    assert sorted(plots(folder)) == ["plddt", "thumbnail"]


@pytest.mark.parametrize("sequence", ["M", "MK"])
def test_plots_of_the_shortest_chains(tmp_path: Path, sequence: str) -> None:
    folder = write_result(tmp_path, sequence=sequence, hits=())
    make_report(target_files(folder), {}, ReportSettings())
    assert len(plots(folder)) == 4 and (folder / "target.html").is_file()


def test_plots_of_untrained_networks_are_stamped(tmp_path: Path) -> None:
    seen = {}
    for untrained in (False, True):
        folder = write_result(tmp_path / str(untrained), untrained=untrained)
        make_report(target_files(folder), {}, PLOTS_ONLY)
        stamp = np.array([int("8c1402"[i : i + 2], 16) / 255 for i in (0, 2, 4)])
        seen[untrained] = [
            int((np.abs(pixels(folder / f"target_{kind}.png")[..., :3] - stamp) < 0.01).all(-1).sum())
            for kind in ("plddt", "pae")
        ]
    assert max(seen[False]) == 0 and min(seen[True]) > 500


@pytest.mark.parametrize(
    ("sequence", "models", "chains"),
    [
        ("M", 1, 1),
        ("MKV" * 3000, 1, 1),
        ("MKVL" * 30, 10, 2),
        ("MKVL" * 30, 1, 15),
    ],
)
def test_no_text_is_cut_off(tmp_path: Path, sequence: str, models: int, chains: int) -> None:
    folder = write_result(
        tmp_path, sequence=sequence, models=models, untrained=True, pae=len(sequence) < 1000, hits=()
    )
    result = read_result(target_files(folder), {})
    lengths = [len(part) for part in np.array_split(np.arange(len(sequence)), chains)]
    # the names of chains in mmCIF files may have several letters
    names = ("A", "long")
    object.__setattr__(
        result.models[0].atoms, "chains", tuple((names[k % 2], n) for k, n in enumerate(lengths))
    )
    for path in write_plots(result, read_alignment_summary(folder / "target.a3m", None, [sequence])):
        if "thumbnail" not in path.name:
            image = pixels(path)[..., :3]
            for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
                assert (edge == 1).all(), path.name


def test_molecules_have_plots_by_token_and_chain(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    pytest.importorskip("biotite")
    from tests.foldcli.report.molecules import write_molecules  # needs both

    files = write_molecules(tmp_path / "complex")
    assert not PLOTS_ONLY.is_made(files)
    names = {path.name for path in make_report(files, {}, PLOTS_ONLY)}
    assert names == {f"complex_{kind}.png" for kind in ("plddt", "pae", "thumbnail")}
    assert PLOTS_ONLY.is_made(files)
    image = pixels(files.path("plddt"))[..., :3]
    for colour in page_data.CHAIN_COLOURS[:5]:  # also of the ion, which is one token
        shade = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        assert (np.abs(image - shade) < 0.02).all(-1).sum() > 20, colour
    for kind in ("plddt", "pae"):
        image = pixels(files.path(kind))[..., :3]
        assert all((edge == 1).all() for edge in (image[0], image[-1], image[:, 0], image[:, -1]))


# linear RGB as seen without one kind of cone cells (Machado, Oliveira, Fernandes 2009)
BLINDNESS = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.3039),
    ),
}


def cielab(colour: str, vision: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Return the CIELAB coordinates of a colour as seen with a type of colour vision."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(vision) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_confidence_colours_differ_for_the_colour_blind(kind: str) -> None:
    colours = [cielab(colour, BLINDNESS[kind]) for _, _, colour in page_data.CONFIDENCE_CLASSES]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(colours) for b in colours[:i]]
    assert min(distances) > 20
    # unlike red and green of the same lightness
    assert (
        np.linalg.norm(
            cielab("#c04000", BLINDNESS["deuteranopia"]) - cielab("#6a7500", BLINDNESS["deuteranopia"])
        )
        < 20
    )
