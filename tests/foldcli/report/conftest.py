"""A browser to look at pages with."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; tests that want it are skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium is installed")
    flags = ["no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
             "disable-component-update", "disable-sync"]  # fmt: skip
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=executable, args=[f"--{flag}" for flag in flags])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file as a page; at the end of the test its console must be clean and nothing fetched."""
    contexts, troubles = [], []

    def opened(path: Path, **settings: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request", lambda request: troubles.append(request.url) if request.url[:5] != "file:" else None
        )
        page.goto(path.resolve().as_uri())
        # two frames: what changed in the first is drawn in the second
        page.settle = lambda: page.evaluate(
            "() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))"
        )
        page.settle()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []
