"""Fixtures: a headless browser, and pages opened in it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start a headless Chromium, or skip the test if there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("needs Chromium")
    # WebGL in software
    flags = [
        "no-sandbox", "use-angle=swiftshader", "enable-unsafe-swiftshader", "disable-quic", "no-first-run",
        "disable-background-networking", "disable-component-update", "disable-sync",
    ]  # fmt: skip
    with playwright.sync_playwright() as playwright_api:
        started = playwright_api.chromium.launch(
            executable_path=executable, args=[f"--{flag}" for flag in flags]
        )
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a file as a page.

    At the end of the test, the console must be empty and nothing may have been fetched.
    """
    contexts, problems = [], []

    def is_remote(url: str) -> bool:
        # Mol* contains WebAssembly as a data URL
        return not url.startswith(("file:", "data:"))

    def add_message(message: Any) -> None:
        # pages without their folder look for the viewer, and report that it is missing
        if "/viewer/molstar-" not in message.location.get("url", ""):
            problems.append(f"{message.type}: {message.text}")

    def open_file(path: Path, **settings: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings))
        contexts.append(context)
        page = context.new_page()
        page.on("console", add_message)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if is_remote(request.url) else None)
        page.goto(path.resolve().as_uri())
        page.wait_for_function("() => !document.querySelector('#viewer:not([data-ready])')", timeout=120_000)
        # wait for two frames: changes in the first are drawn in the second
        page.settle = lambda: page.evaluate(
            "() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))"
        )
        page.settle()
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert problems == []
