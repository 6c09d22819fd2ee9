"""How a person's hands move in JupyterLab: find a cell, write into it, run it, read what came out."""

import re

from playwright.sync_api import Locator, Page, expect

MINUTE = 60_000  # milliseconds


class Lab:
    """JupyterLab in a page, with one notebook open."""

    def __init__(self, page: Page, url: str, cells: int):
        """cells : how many the notebook has; all of them must be drawn before anything is done."""
        self.page = page
        page.goto(url)
        expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(cells, timeout=MINUTE)
        expect(page.locator(".jp-Notebook-ExecutionIndicator")).to_have_attribute(
            "data-status", "idle", timeout=MINUTE
        )

    def cell(self, place: int) -> Locator:
        """The cell at this place, from 0."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(place)

    def write(self, place: int, source: str) -> None:
        """Put a text in the place of a cell's own, as by pasting."""
        editor = self.cell(place).locator(".cm-content")
        editor.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def run(self, place: int) -> Locator:
        """Run one cell that stands open in its editor; its outputs, once it is done."""
        before = self.count(place)
        self.cell(place).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        self.wait(place, before)
        return self.output(place)

    def run_all(self, last: int) -> None:
        """Choose "Run All Cells" in the menu, and wait for the last code cell."""
        before = self.count(last)
        self.page.locator(".lm-MenuBar-item", has_text=re.compile(r"^Run$")).click()
        self.page.locator(".lm-Menu-item", has_text=re.compile(r"^Run All Cells")).first.click()
        self.wait(last, before)

    def count(self, place: int) -> str:
        """The number in front of a code cell."""
        return self.cell(place).locator(".jp-InputPrompt").inner_text()

    def wait(self, place: int, before: str) -> None:
        """Until the cell has another number than before."""
        prompt = self.cell(place).locator(".jp-InputPrompt")
        expect(prompt).to_have_text(re.compile(r"^\[\d+\]:$"), timeout=2 * MINUTE)
        expect(prompt).not_to_have_text(before)

    def output(self, place: int) -> Locator:
        """All outputs of a cell."""
        return self.cell(place).locator(".jp-Cell-outputArea")

    def save(self) -> None:
        """Save the notebook, and wait until the server has it."""
        with self.page.expect_response(
            lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url
        ):
            self.page.keyboard.press("Control+s")
