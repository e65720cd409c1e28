"""The view of a structure in a notebook: a frame with Mol* and everything that it needs."""

import base64
import gzip
import json
from functools import cache
from html import escape

from foldcli.params.parameters import UNTRAINED
from foldcli.report.data.page_data import CONFIDENCE_CLASSES
from foldcli.report.rendering import page_script
from foldcli.report.viewer import load_viewer

_STYLE = "html,body,#box{margin:0;height:100%;background:#fff;font:14px sans-serif}#box{position:relative}"


def notebook_view(text: str, kind: str, caption: str, untrained: bool) -> str:
    """Return HTML that draws a structure, coloured by pLDDT, without any network request."""
    viewer, caption = load_viewer(), escape(f"{UNTRAINED} {caption}" if untrained else caption)
    if viewer.script is None:
        return f"<p>{caption}; {escape(viewer.missing)}</p>"
    data = {"format": kind, "text": text, "colours": CONFIDENCE_CLASSES, "molstar": _packed_viewer()}
    # "<" would end the element
    content = json.dumps(data).replace("<", "\\u003c")
    page = (
        f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style><div id=box></div>"
        f"<script type='application/json' id=data>{content}</script>"
        f"<script>{page_script(('viewer.js', 'notebook.js'))}</script>"
    )
    frame = f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" title="{caption}"'
    style = 'allow="xr-spatial-tracking *" style="width:100%;height:400px;border:1px solid #ccc"'
    return f"{frame} {style}></iframe><p>{caption}</p>"


@cache
def _packed_viewer() -> str:
    script = load_viewer().script
    assert script is not None
    return base64.b64encode(gzip.compress(script.read_bytes(), mtime=0)).decode()
