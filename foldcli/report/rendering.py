"""HTML pages from the Jinja templates in pages/; all values are escaped."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from foldcli.report.data.comparison import state_values
from foldcli.report.data.file_rows import file_rows
from foldcli.report.data.molecules import MoleculeResult
from foldcli.report.data.page_data import CLASS_RANGES, CONFIDENCE_CLASSES
from foldcli.report.data.result import TargetResult
from foldcli.report.viewer import Viewer
from foldcli.units import format_duration


def render_page(
    template: str,
    scripts: Sequence[str],
    image_sources: str = "data: blob:",
    loads_viewer: bool = False,
    **values: object,
) -> str:
    """Return an HTML page that can be opened from disk and makes no network requests.

    Its content security policy allows only the style and the script in the page itself.

    Args:
        template: file in pages/.
        scripts: JavaScript assets, in the order in which they depend on each other.
        image_sources: allowed sources of images, in the syntax of the policy.
        loads_viewer: also allow scripts that the page's own script adds, and what Mol* does when it is
            loaded: it calls `new Function`, and reads its WebAssembly from a data URL.
        values: variables of the template.
    """
    style, script = _read_asset("style.css"), page_script(tuple(scripts))
    viewer_scripts, connections = "", "'none'"
    if loads_viewer:
        viewer_scripts, connections = " 'strict-dynamic' 'unsafe-eval'", "data:"
    policy = (
        f"default-src 'none'; script-src {_hash_source(script)}{viewer_scripts}; "
        f"style-src {_hash_source(style)}; connect-src {connections}; img-src {image_sources}; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template(template)
    return page.render(policy=policy, style=Markup(style), script=Markup(script), **values)


def page_values(
    result: TargetResult | MoleculeResult,
    viewer: Viewer,
    script: str = "",
    comparison: dict[str, Any] | None = None,
    similar: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments of `render_page` that the pages of all targets have.

    Args:
        result: the target's models.
        viewer: the structure viewer, or the reason why there is none.
        script: path of its script relative to the page; "" if there is none.
        comparison: see `comparison_values`.
        similar: see `similar_values`.
    """
    names = [name for _, name, _ in CONFIDENCE_CLASSES]
    return {
        "loads_viewer": bool(script),
        "viewer_script": quote(script),
        "viewer_missing": viewer.missing,
        "viewer_version": viewer.version,
        "confidence_classes": list(zip(names, CLASS_RANGES, strict=True)),
        "comparison": comparison,
        "similar": similar,
        "states": state_values(result.done),
        "name": result.files.name,
        "untrained": result.is_untrained,
        "model_count": result.model_count,
        "files": file_rows(result.files, result.models, bool(result.done)),
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("foldcli.report", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= {"duration": format_duration, "link": quote}
    return environment


@cache
def page_script(names: tuple[str, ...]) -> str:
    """Return the named JavaScript assets as one script."""
    # a function around all scripts keeps their names apart from the viewer's
    body = "\n".join(map(_read_asset, names))
    return f"(() => {{\n'use strict';\n{body}}})();\n"


@cache
def _read_asset(name: str) -> str:
    return files("foldcli.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _hash_source(content: str) -> str:
    """Return the source expression of a content security policy that allows exactly this content."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
