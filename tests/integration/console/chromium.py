"""Starts the system's Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from infra.toolchain.chromium import path

WIDTH, HEIGHT = 1280, 900

_FLAGS = (
    # a container of continuous integration has no user namespaces, which the sandbox needs; the pages
    # are those of this checkout
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-lcd-text",  # gray text alone: screenshots have a quarter fewer bytes
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser with a new profile, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path(), args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()
