"""Pages in headless Chromium: drawing, pointer, keyboard and small screens."""

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.templates.library.chains import TemplateChain
from features.templates.library.library import EMBEDDED, StructureLibrary
from foldcli.outputs.layout import TargetFiles
from foldcli.report import ReportSettings
from foldcli.report.index import write_index
from foldcli.report.make import make_report
from msa.base.residues import ATOM37
from tests.foldcli.report.results import (
    LETTERS,
    SEQUENCE,
    add_network_facts,
    helix,
    pdb,
    target_files,
    write_complex,
    write_result,
)

pytestmark = pytest.mark.browser
N = len(SEQUENCE)
OpenPage = Callable[..., Any]
# left, top, right and bottom margins in the canvas of the PAE map
MARGINS = (52, 8, 18, 44)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_result(folder / "target", models=3)
    chain = StructureLibrary.open(EMBEDDED).chain(1562)  # ubiquitin
    write_result(folder / "ubiquitin", "ubiquitin", chain.sequence, hits=())
    for path in (folder / "ubiquitin").glob("*.pdb"):
        path.write_text(backbone_pdb(chain))
    for name in ("target", "ubiquitin"):
        make_report(TargetFiles(name, folder), {}, ReportSettings(plots=False))
    return folder


@pytest.fixture(scope="module")
def report(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page without its folder, as it is sent by mail: the structure is a simple trace."""
    return Path(shutil.copy(results / "target/target.html", tmp_path_factory.mktemp("alone")))


def backbone_pdb(chain: TemplateChain) -> str:
    """Return a PDB file of a chain from the structure library, which has no side chains beyond Cβ."""
    lines = []
    for i, j in zip(*np.nonzero(chain.mask), strict=True):
        x, y, z = chain.positions[i, j]
        lines.append(
            f"ATOM  {len(lines) + 1:5d}  {ATOM37[j]:3} {LETTERS[chain.sequence[i]]} A{i + 1:4d}    "
            f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00 90.00           {ATOM37[j][0]}\n"
        )
    return "".join(lines)


def colours(page: Any, *residues: int) -> list[tuple[int, int, int]]:
    """Return the colours of residues, numbered from 1, in the structure."""
    values = page.evaluate(
        "(residues) => { const { structure } = document.getElementById('viewer');"
        "return residues.map((i) => structure.colourOf(i - 1, structure.model)); }",
        list(residues),
    )
    return [tuple(each) for each in values]


def canvas_position(page: Any, residue: int) -> dict[str, float]:
    """Return the position of a residue of the simple trace, numbered from 1, in its canvas."""
    return page.evaluate(
        "(i) => { const { x, y } = document.getElementById('viewer').structure.points[i - 1];"
        "return { x, y }; }",
        residue,
    )


def pae_position(page: Any, scored: float, aligned: float) -> dict[str, float]:
    """Return the position of a residue pair, numbered from 1, in the canvas of the PAE map."""
    box = page.locator("#pae-canvas").bounding_box()
    left, top, right, bottom = MARGINS
    width, height = box["width"] - left - right, box["height"] - top - bottom
    return {"x": left + (scored - 0.5) / N * width, "y": top + (aligned - 0.5) / N * height}


def drag(page: Any, selector: str, start: dict[str, float], end: dict[str, float]) -> None:
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    page.mouse.move(box["x"] + start["x"], box["y"] + start["y"])
    page.mouse.down()
    page.mouse.move(box["x"] + end["x"], box["y"] + end["y"], steps=4)
    page.mouse.up()
    page.settle()


def image(page: Any, canvas: str) -> str:
    if canvas == "canvas":
        return page.evaluate("() => document.getElementById('viewer').structure.picture()")
    return page.evaluate("(id) => document.getElementById(id).toDataURL()", canvas)


def view(page: Any) -> str:
    """Return rotation and zoom of the simple trace."""
    return page.evaluate(
        "() => { const { rotation, scale } = document.getElementById('viewer').structure;"
        "return JSON.stringify([rotation, scale]); }"
    )


def coloured_share(page: Any) -> float:
    """Return the share of pixels of the structure that are drawn."""
    return page.evaluate(
        "async () => { const picture = new Image();"
        "picture.src = await document.getElementById('viewer').structure.picture(); await picture.decode();"
        "const c = document.createElement('canvas');"
        "Object.assign(c, { width: picture.width, height: picture.height });"
        "const context = c.getContext('2d'); context.drawImage(picture, 0, 0);"
        "const d = context.getImageData(0, 0, c.width, c.height).data, first = d.slice(0, 4).join();"
        "let n = 0; for (let i = 0; i < d.length; i += 4) n += d.slice(i, i + 4).join() !== first;"
        "return n / (d.length / 4); }"
    )


def test_cartoon_has_helices_strands_and_side_chains(results: Path, open_page: OpenPage) -> None:
    # small, because WebGL in software is slow
    page = open_page(results / "ubiquitin/ubiquitin.html", viewport={"width": 320, "height": 700})
    assert page.get_attribute("#viewer", "data-drawn") == "cartoon"
    assert page.inner_text("#structure-problem") == "" and page.locator("#tube").is_hidden()
    assert coloured_share(page) > 0.02
    # Mol* draws the page's own helices and strands
    found = page.evaluate(
        "() => { const { unit } = molstar.lib.structure.StructureElement.Loci.getFirstLocation("
        "molstar.lib.structure.StructureElement.Loci.all("
        "document.getElementById('viewer').structure.structure.obj.data));"
        "const properties = Object.values(unit.model._staticPropertyData);"
        "const found = properties.find((each) => each?.elements && each.key);"
        "return Array.from(found.key, (key) => found.elements[key].kind); }"
    )
    assert (found[3], found[9], found[27], found[57]) == ("sheet", "none", "helix", "helix")
    before = image(page, "canvas")
    page.fill("#residues-input", "29, 33")
    page.click("#focus")
    page.evaluate("() => document.getElementById('viewer').structure.queue")
    page.wait_for_timeout(600)
    assert page.evaluate("() => Boolean(document.getElementById('viewer').structure.sideChains)")
    assert image(page, "canvas") != before
    page.select_option("#colour-mode", "secondary")
    page.check("#model-2")
    page.settle()
    page.evaluate("() => document.getElementById('viewer').structure.queue")
    assert page.evaluate("() => document.getElementById('viewer').structure.model.rank") == 2
    assert coloured_share(page) > 0.02
    # the middle of the picture is the selected part, which has been zoomed to
    page.locator("#clear").click()
    name = re.compile(r"[A-Z](\d+), (α-helix|3-10 helix|strand|coil), pLDDT \d+\.\d")
    page.locator("#canvas").scroll_into_view_if_needed()
    box = page.locator("#canvas").bounding_box()
    for x, y in itertools.product((0.5, 0.55, 0.6, 0.45, 0.4), repeat=2):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        page.wait_for_timeout(400)
        if (named := name.fullmatch(page.inner_text("#structure-readout"))) is not None:
            break
    assert named is not None
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("() => document.getElementById('residues-input').value")
    assert page.input_value("#residues-input") == named[1]


@pytest.mark.parametrize("drawing", ["cartoon", "tube"])
def test_view_holds_all_of_a_long_molecule(tmp_path: Path, open_page: OpenPage, drawing: str) -> None:
    write_result(tmp_path / "target", sequence=SEQUENCE * 4, models=1, hits=())
    (structure,) = tmp_path.glob("target/*.pdb")
    # a helix of 230 Å with a compact end, so that the mean of the residues is far from the middle
    bent = helix(4 * N, 0)
    bent[:60, 2] = bent[60, 2] + bent[:60, 2] % 9
    structure.write_text(pdb(SEQUENCE * 4, bent, np.full(4 * N, 90.0)))
    make_report(TargetFiles("target", tmp_path), {}, ReportSettings(plots=False))
    if drawing == "tube":
        shutil.rmtree(tmp_path / "viewer")
    page = open_page(tmp_path / "target/target.html", viewport={"width": 320, "height": 700})
    assert page.get_attribute("#viewer", "data-drawn") == drawing
    for angle in (0, 0.8, 0.8):
        ends = page.evaluate(
            "async (angle) => { const { structure } = document.getElementById('viewer');"
            "await structure.queue; if (angle) structure.rotate('y', angle);"
            "const box = document.getElementById('canvas').getBoundingClientRect();"
            "if (structure.points)"
            "  return structure.points.flatMap(({ x, y }) => [x / box.width, y / box.height]);"
            "const { camera } = structure.plugin.canvas3d; camera.update();"
            "const { width, height } = camera.viewport, { positions, residues } = structure.model;"
            "return residues.flatMap(({ ca }) => { const at = [...positions.subarray(3 * ca, 3 * ca + 3)];"
            "const [x, y] = camera.project([0, 0, 0, 0], at); return [x / width, y / height]; }); }",
            angle,
        )
        assert min(ends) > 0.01 and max(ends) < 0.99, f"turned by {angle}"
        if not angle:
            assert max(ends) - min(ends) > 0.8, "the molecule fills the view"


def test_page_without_its_folder_shows_a_trace(report: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    page.wait_for_selector("#viewer[data-ready]", state="attached")
    assert page.get_attribute("#viewer", "data-drawn") == "tube"
    assert "../viewer/molstar-5" in page.inner_text("#structure-problem")
    page.close()


def test_page_without_webgl_shows_a_trace(results: Path, browser: Any) -> None:
    page = browser.new_page()
    page.add_init_script(
        "const { getContext } = HTMLCanvasElement.prototype;"
        "HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {"
        "  return /webgl/.test(kind) ? null : getContext.call(this, kind, ...rest); };"
    )
    page.goto((results / "target/target.html").as_uri())
    page.wait_for_selector("#viewer[data-ready]", state="attached")
    assert page.get_attribute("#viewer", "data-drawn") == "tube"
    assert "no WebGL" in page.inner_text("#structure-problem")
    page.close()


def test_structure_is_coloured_by_confidence(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    # pLDDT of the best model falls from 91 to 35
    assert colours(page, 1, 10, N) == [(0x00, 0x53, 0xD6), (0x65, 0xCB, 0xF3), (0xFF, 0x7D, 0x45)]
    assert coloured_share(page) > 0.01
    page.select_option("#colour-mode", "position")
    page.settle()
    assert colours(page, 1, N) == [(253, 231, 37), (68, 1, 84)]


def test_pae_under_the_pointer_is_shown(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    # |i − j| / 4 + rank, plus 3 Å if the scored residue comes after the aligned residue
    for scored, aligned, error in ((30, 10, 9.0), (10, 30, 6.0), (7, 7, 1.0)):
        page.locator("#pae-canvas").hover(position=pae_position(page, scored, aligned))
        page.settle()
        readout = page.inner_text("#pae-readout")
        names = [f"{SEQUENCE[i - 1]}{i}" for i in (scored, aligned)]
        assert readout == f"PAE {error:.1f} Å at {names[0]} when aligned on {names[1]}"
    page.locator("h1").hover()
    page.settle()
    assert page.inner_text("#pae-readout") == ""


def test_box_in_the_pae_map_selects_residues_everywhere(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    before = image(page, "canvas"), colours(page, 5, 10, 30, 40)
    drag(page, "#pae-canvas", pae_position(page, 28, 4), pae_position(page, 32, 6))
    assert page.input_value("#residues-input") == "4-6, 28-32"
    assert page.inner_text("#selected").startswith("8 selected")
    after = colours(page, 5, 10, 30, 40)
    assert (after[0], after[2]) == (before[1][0], before[1][2]), "selected residues keep their colour"
    assert after[1] == after[3] not in before[1], "other residues are dimmed"
    assert image(page, "canvas") != before[0]
    assert page.locator("#sequence b.on").count() == 8
    # a click without a drag clears the selection
    page.locator("#pae-canvas").click(position=pae_position(page, 20, 20))
    page.settle()
    assert colours(page, 5, 10, 30, 40) == before[1] and page.input_value("#residues-input") == ""


def test_choosing_a_model_updates_all_panels(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    views = ("canvas", "pae-canvas", "curve-canvas")
    before = [image(page, view) for view in views]
    shares = page.inner_text("#share-0")
    page.focus("#model-1")
    page.keyboard.press("ArrowDown")
    page.settle()
    assert page.is_checked("#model-2")
    assert all(image(page, view) != old for view, old in zip(views, before, strict=True))
    assert colours(page, 1) == [(0x65, 0xCB, 0xF3)], "81 in the second model"
    assert page.inner_text("#share-0").strip() == "0 %" != shares.strip()
    assert "rank 2" in page.get_attribute("#canvas", "aria-label")
    page.locator("#pae-canvas").hover(position=pae_position(page, 30, 10))
    page.settle()
    assert "PAE 10.0 Å" in page.inner_text("#pae-readout")


def test_everything_works_by_keyboard(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    page.focus("#pae-canvas")
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowDown", "Enter", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.settle()
    assert page.input_value("#residues-input") == "2-3, 11-12"
    assert "at I3 when aligned on T12" in page.inner_text("#pae-readout")
    page.keyboard.press("Escape")
    page.settle()
    assert page.input_value("#residues-input") == ""
    page.focus("#curve-canvas")
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.settle()
    assert page.input_value("#residues-input") == "2-4"
    assert page.inner_text("#curve-readout").startswith("F4, coil: rank 1 ")
    page.focus("#canvas")
    seen = [(view(page), image(page, "canvas"))]
    for key in ("ArrowRight", "+", "0"):
        page.keyboard.press(key)
        seen.append((view(page), image(page, "canvas")))
    views, images = zip(*seen, strict=True)
    assert len(set(views)) == len(set(images[:3])) == 3 and views[3] == views[0]
    page.focus("#coverage-canvas")
    page.keyboard.press("ArrowRight")
    page.settle()
    assert page.inner_text("#coverage-readout") == "M1: 3 of 3 rows"
    # Tab reaches every control, in order
    page.focus("#model-1")
    reached = []
    while "explanation" not in reached and len(reached) < 60:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if reached[-1] == "BODY":
            break
    expected = [
        "colour-mode", "zoom-in", "zoom-out", "spin", "reset", "save-picture", "save-pdb", "canvas",
        "pae-canvas", "curve-canvas", "residues-input", "clear", "coverage-canvas",
    ]  # fmt: skip
    assert [each for each in reached if each in expected] == expected


def test_residues_are_selected_by_number(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    before = image(page, "canvas")
    page.fill("#residues-input", "3, 10 – 12")
    page.settle()
    assert image(page, "canvas") != before
    assert page.inner_text("#selected").startswith("4 selected")
    for wrong in ("0", "3-", "x", f"{N + 1}", "9-3"):
        page.fill("#residues-input", wrong)
        page.settle()
        assert page.inner_text("#selected") == f"expected residues from 1 to {N}, such as 10-25, 40"
        assert page.get_attribute("#residues-input", "aria-invalid") == "true"
    page.click("#clear")
    page.settle()
    assert (
        page.inner_text("#selected") == ""
        and page.get_attribute("#residues-input", "aria-invalid") == "false"
    )


def test_residue_under_the_pointer_is_named_and_selected(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    position = canvas_position(page, 1)
    page.locator("#canvas").hover(position=position)
    page.settle()
    named = re.match(r"[A-Z](\d+), coil, pLDDT ", page.inner_text("#structure-readout"))
    assert named is not None
    page.locator("#canvas").click(position=position)
    page.settle()
    assert page.input_value("#residues-input") == named[1]


def test_page_fits_phones_and_dark_mode(report: Path, open_page: OpenPage) -> None:
    light = open_page(report, viewport={"width": 390, "height": 844}, has_touch=True, device_scale_factor=2)
    dark = open_page(report, viewport={"width": 390, "height": 844}, color_scheme="dark")
    for page in (light, dark):
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        for canvas in ("canvas", "pae-canvas", "curve-canvas", "coverage-canvas"):
            box = page.locator(f"#{canvas}").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["height"] > 150
    backgrounds = [
        page.evaluate("getComputedStyle(document.documentElement).backgroundColor") for page in (light, dark)
    ]
    assert [sum(map(int, re.findall(r"\d+", each))) > 384 for each in backgrounds] == [True, False]
    assert image(light, "curve-canvas") != image(dark, "curve-canvas")


def test_alignment_of_a_hit_opens(report: Path, open_page: OpenPage) -> None:
    page = open_page(report)
    assert not page.locator("#hits pre").first.is_visible()
    page.locator("#hits summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#hits pre").first.inner_text().startswith(f"query      1 {SEQUENCE[:5]}---")


def test_long_tables_name_the_rows_and_columns_that_are_out_of_sight(
    tmp_path: Path, open_page: OpenPage
) -> None:
    hits = tuple(f"hit{i}" for i in range(23))
    folder = write_result(tmp_path, sequence=SEQUENCE * 12, models=1, hits=hits)
    make_report(target_files(folder), {}, ReportSettings(plots=False))
    shutil.rmtree(folder / "viewer")
    wide, narrow = (
        open_page(folder / "target.html", viewport={"width": w, "height": 800}) for w in (1440, 390)
    )
    for page in (wide, narrow):
        rows = page.locator("#hits-table tbody tr:visible")
        assert rows.count() == 12
        page.get_by_role("button", name="Show all 23 rows").press("Enter")
        assert rows.count() == 23
        page.get_by_role("button", name="Show the first 12 rows only").click()
        assert rows.count() == 12
        # a box that scrolls downwards would hide rows without a word
        heights = "(box) => box.scrollHeight - box.clientHeight"
        assert page.locator("#hits .scroll").evaluate(heights) <= 1
    assert wide.locator("#hits .cue").is_hidden() and narrow.locator("#hits .cue").is_visible()
    assert wide.locator("#models button").count() == 0, "short tables have no button"
    letters = narrow.locator("#sequence")
    before = letters.bounding_box()["height"]
    narrow.get_by_role("button", name=f"Show all {12 * N} residues").click()
    whole = letters.evaluate("(box) => box.scrollHeight")
    assert letters.bounding_box()["height"] == pytest.approx(whole, abs=1) and whole > before == 320
    box = narrow.locator("#hits .scroll")
    classes = [box.get_attribute("class")]
    box.evaluate("(box) => { box.scrollLeft = 9999; }")
    narrow.wait_for_selector("#hits .more-left:not(.more-right)")
    assert classes == ["scroll more-right"]


def test_reduced_map_states_its_resolution(tmp_path: Path, open_page: OpenPage) -> None:
    folder = write_result(tmp_path, sequence=SEQUENCE * 20, models=5, hits=())
    make_report(target_files(folder), {}, ReportSettings(plots=False))
    shutil.rmtree(folder / "viewer")
    page = open_page(folder / "target.html")
    box = page.locator("#pae-canvas").bounding_box()
    page.locator("#pae-canvas").hover(position={"x": box["width"] - 20, "y": box["height"] - 46})
    page.settle()
    assert "(mean of 2 × 2 residues)" in page.inner_text("#pae-readout")
    assert "each cell is the mean of 2 × 2 residues" in page.inner_text("#pae-keys")


@pytest.mark.parametrize("sequence", ["M", "MK"])
def test_pages_of_the_shortest_chains(tmp_path: Path, open_page: OpenPage, sequence: str) -> None:
    folder = write_result(tmp_path, sequence=sequence, models=1, hits=())
    make_report(target_files(folder), {}, ReportSettings(plots=False))
    page = open_page(folder / "target.html")
    page.fill("#residues-input", "1")
    page.settle()
    assert page.inner_text("#selected").startswith("1 selected")


def test_index_sorts_and_filters(tmp_path: Path, open_page: OpenPage) -> None:
    for name, sequence in (("b", SEQUENCE), ("a", SEQUENCE[:9]), ("c", SEQUENCE * 3)):
        write_result(tmp_path / name, name, sequence, hits=())
        make_report(TargetFiles(name, tmp_path), {}, ReportSettings())
    (tmp_path / "failures.jsonl").write_text('{"target": "d", "error": "no residues"}\n')
    path = write_index(tmp_path)
    assert path is not None
    page = open_page(path)
    names = lambda: page.locator("#targets tbody tr:visible th").all_inner_texts()  # noqa: E731
    assert names() == ["a", "b", "c", "d"]
    page.get_by_role("button", name="length").click()
    assert (
        names() == ["a", "b", "c", "d"]
        and page.get_attribute("#targets th:nth-child(3)", "aria-sort") == "ascending"
    )
    page.get_by_role("button", name="length").press("Enter")
    assert names() == ["c", "b", "a", "d"], "unknown values stay last"
    shown = page.evaluate("[...document.images].map((each) => each.complete && each.naturalWidth)")
    assert shown == [128] * 3
    page.fill("#filter", "no res")
    assert names() == ["d"] and page.inner_text("#shown") == "1 of 4"
    page.fill("#filter", "")
    page.get_by_role("link", name="b").click()
    assert page.title() == "b: predicted structure"


def test_index_shows_every_value_on_a_phone(tmp_path: Path, open_page: OpenPage) -> None:
    for name in ("a", "b"):
        write_result(tmp_path / name, name, header=f"{name} Ubiquitin, human", hits=())
        add_network_facts(tmp_path / name / f"{name}.done.json")
    path = write_index(tmp_path)
    assert path is not None
    page = open_page(path, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for text in ("Ubiquitin, human", "PDB 1UBQ_A, 96 % identity", "68 to 92", "63.0", "0.80", "finished"):
        box = page.locator("#targets tbody tr").first.get_by_text(text).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390, text
    page.get_by_role("button", name="target").click()
    assert page.locator("#targets tbody a, #targets tbody th").all_inner_texts()[0].startswith("b")


def test_chains_of_a_complex_are_coloured_named_and_selected(tmp_path: Path, open_page: OpenPage) -> None:
    write_complex(tmp_path / "target")
    make_report(TargetFiles("target", tmp_path), {}, ReportSettings(plots=False))
    page = open_page(tmp_path / "target/target.html")
    assert page.get_attribute("#viewer", "data-drawn") == "cartoon"
    page.select_option("#colour-mode", "chain")
    page.settle()
    # the first and the last residue of A, the first of B and of C
    first, last, b, c = colours(page, 1, 12, 13, 25)
    assert first == last and len({first, b, c}) == 3
    assert page.inner_text("#chain-legend").split() == ["chain", "A", "chain", "B", "chain", "C"]
    page.fill("#residues-input", "B:2-4, 6, A:12")
    page.settle()
    assert page.inner_text("#selected").startswith("5 selected")
    assert page.locator("#sequence b.on").all_inner_texts() == ["G", "G", "L", "A", "M"]
    for wrong in ("B:13", "D:1", "C:8"):
        page.fill("#residues-input", wrong)
        page.settle()
        assert page.inner_text("#selected") == "expected residues of chains A to C, such as A:1-5, B:3"
    page.click("#clear")
    page.locator("#sequence b").nth(12).click()
    page.settle()
    assert page.input_value("#residues-input") == "B:1"
    with page.expect_download() as download:
        page.click("#save-pdb")
    saved = Path(download.value.path()).read_text().splitlines()
    assert [line[21:26] for line in saved if line[:4] == "ATOM" and line[12:16] == " CA "][11:14] == [
        "A  12", "B   1", "B   2",
    ]  # fmt: skip
    assert saved.count("TER") == 3


@pytest.fixture(scope="module")
def compared(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of three models that are compared with a reference."""
    folder, references = tmp_path_factory.mktemp("compared"), tmp_path_factory.mktemp("references")
    write_result(folder / "target", models=3)
    shifted = helix(N, 0) + np.array([30.0, -8.0, 4.0])
    (references / "target.pdb").write_text(pdb(SEQUENCE, shifted, np.zeros(N)))
    make_report(TargetFiles("target", folder), {}, ReportSettings(plots=False, references=references))
    return folder / "target/target.html"


def test_models_and_reference_are_superposed_by_keyboard(compared: Path, open_page: OpenPage) -> None:
    page = open_page(compared)
    trajectories = "() => viewer.structure.plugin.managers.structure.hierarchy.current.models.length"
    assert page.evaluate(trajectories) == 1
    for box, count in (("#show-others", 3), ("#show-reference", 4), ("#show-others", 2)):
        page.focus(box)
        page.keyboard.press("Space")
        page.wait_for_function(f"({trajectories})() === {count}")
    # the reference is where the best model is
    first = page.evaluate(
        "() => JSON.parse(document.getElementById('data').textContent).reference.split('\\n')[0]"
    )
    assert abs(float(first[30:38])) < 40
    page.focus("input[name=model][value='1']")
    page.keyboard.press("Space")
    page.wait_for_function(f"({trajectories})() === 2")


def test_everything_is_reached_by_tab(compared: Path, open_page: OpenPage) -> None:
    page = open_page(compared)
    # arrow keys move within a group of radio buttons
    describe = "(e) => e.type === 'radio' ? e.name : e.id || e.href || e.textContent.trim().slice(0, 40)"
    selector = "button, a[href], input, select, summary, [tabindex=\\'0\\']"
    found = f"() => [...document.querySelectorAll('{selector}')]"
    wanted = set(page.evaluate(f"{found}.filter((e) => !e.disabled && e.checkVisibility()).map({describe})"))
    reached = set()
    page.evaluate("() => document.body.focus()")
    for _ in range(2 * len(wanted)):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"() => ({describe})(document.activeElement)"))
        # and the focus can be seen
        assert page.evaluate("() => document.activeElement.matches('body, :focus-visible')")
    assert wanted <= reached, wanted - reached
