"""An instructor looks at a hostile submission: nothing in it runs, and what is honest is still there."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from playwright.sync_api import expect

from autograder.demo import answered, with_cell
from autograder.lessons import ROOT, find
from tests.browser.corpus import CANARY, HTML, MARKDOWN, RUN

LESSON = find("02_layer_norm")
NAME = LESSON.name
HOSTILE = f"x<img src=x onerror={RUN}>"  # the name of a student and of a file
RAISES = """\
class Loud(Exception):
    def _repr_html_(self):
        return MARKUP


MARKUP = {markup!r}
Loud.__name__ = Loud.__qualname__ = MARKUP


def layer_norm(x, gamma, beta, eps=1e-5):
    MARKUP
    raise Loud(MARKUP)


layer_norm.__doc__ = layer_norm.__name__ = layer_norm.__qualname__ = MARKUP
print(MARKUP)
print("\\x1b[31;1m" + MARKUP + "\\x1b]8;;javascript:{run}\\x07x\\x1b]8;;\\x07")
layer_norm?
raise Loud(MARKUP)
"""
SHOWS = """\
from IPython.display import HTML, SVG, Javascript, Latex, Markdown, display

for markup in {html!r}:
    display(HTML(markup), SVG(data="<svg xmlns='http://www.w3.org/2000/svg'>" + markup + "</svg>") if 0 else HTML(markup))
    display({{"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'>" + markup + "</svg>"}}, raw=True)
    display({{"text/markdown": markup, "text/latex": markup}}, raw=True)
for markup in {markdown!r}:
    display({{"text/markdown": markup}}, raw=True)
    display({{"text/latex": markup}}, raw=True)
    display(HTML(markup))
display(Javascript({run!r}))
display({{"application/javascript": {run!r}, "text/plain": "x"}}, raw=True)
display({{"application/vnd.jupyter.widget-view+json": {{"model_id": "<script>{run}</script>"}}, "text/html": {html!r}[0]}}, raw=True)
display({{"application/pdf": "x", "image/png": '"><img src=x onerror={run}>'}}, raw=True)
display({{"image/png": "iVBORw0KGgo="}}, metadata={{"image/png": {{"width": '1" onerror="{run}'}}}}, raw=True)
"""
HONEST = """\
import matplotlib.pyplot as plt
from IPython.display import HTML, display

fig, ax = plt.subplots(figsize=(2, 2))
ax.plot([1, 2])
plt.show()
display(HTML("<table><tr><th>honest</th><td>4.25</td></tr></table><p><b>bold</b> $a_1^2$ <a href='https://example.org'>link</a></p>"))
"""
FORMULA = r"An honest formula: $\frac{a}{b} < 1$ and **bold** text."


@pytest.fixture(scope="module")
def canary():
    """A server whose address no page may ask for. Its .asked are the paths that were."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.address = asked, f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def hostile(address):
    """The release with every input of the corpus in its cells, their outputs, attachments and metadata."""
    html = [markup.replace(CANARY, address) for markup in HTML.values()]
    markdown = [markup.replace(CANARY, address) for markup in MARKDOWN.values()]
    layer_norm = RAISES.format(markup=f"<img src=x onerror={RUN}>$\\href{{javascript:{RUN}}}{{x}}$", run=RUN)
    notebook = with_cell(answered(LESSON, {"layer_norm": layer_norm}), 2, HONEST)
    with_cell(notebook, 3, SHOWS.format(html=html, markdown=markdown, run=RUN))
    written = next(
        c
        for c in notebook.cells
        if c.metadata.get("nbgrader", {}).get("solution") and c.cell_type == "markdown"
    )
    written.source = "\n\n".join([FORMULA, *markdown, *html])
    tree = json.loads(json.dumps(notebook))
    for cell in tree["cells"]:
        if cell["cell_type"] == "code":  # what was stored when it was handed in
            cell["outputs"] = [
                {"output_type": "display_data", "metadata": {}, "data": {"text/html": "\n".join(html)}}
            ]
    for markup in (*html, *markdown):
        attachments = {f'x"onerror="{RUN}.png': {"image/svg+xml": markup, "image/png": markup}}
        cell = {"cell_type": "markdown", "metadata": {}, "source": markup, "attachments": attachments}
        tree["cells"] += [cell, {"cell_type": "raw", "metadata": {"format": "text/html"}, "source": markup}]
    tree["metadata"]["title"] = tree["metadata"]["kernelspec"]["display_name"] = html[0]
    tree["metadata"]["widgets"] = {
        "application/vnd.jupyter.widget-state+json": {"state": {"x": html[0]}, "version_major": 2}
    }
    return tree


@pytest.fixture(scope="module")
def course(tmp_path_factory, canary):
    """A course folder, graded by nbgrader with feedback: one hostile submission, and one refused by a hostile name."""
    root = tmp_path_factory.mktemp("teach") / "course"
    config = f"c = get_config()\nload_subconfig('nbgrader_config.py', path={str(ROOT)!r})\nc.CourseDirectory.root = {str(root)!r}\n"
    tree = json.dumps(hostile(canary.address))
    for student in ("mallory", HOSTILE):
        folder = root / "submitted" / student / NAME
        folder.mkdir(parents=True)
        (folder / f"{NAME}.ipynb").write_text(tree if student == "mallory" else "{")
        (folder / f"{HOSTILE}.txt").write_text("notes")
    (root / "nbgrader_config.py").write_text(config)
    command = str(Path(sys.executable).with_name("nbgrader"))
    for step in ("autograde", "generate_feedback"):
        done = subprocess.run(
            [command, step, NAME], cwd=root, env=dict(os.environ), capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stderr[-3000:]
    return root


@pytest.fixture(scope="module")
def server(serve, course):
    return serve(course)


def touch(page):
    """Go over everything that could be clicked, and over every element of the corpus that could be hovered."""
    page.wait_for_timeout(1500)
    for frame in page.frames:
        frame.evaluate(
            """() => {
                const own = ["http:", "https:", "file:"];
                for (const link of document.querySelectorAll("a[href]"))
                    if (!own.includes(link.protocol)) link.click();
                for (const link of document.querySelectorAll("a *|href, math [href], .click")) link.dispatchEvent(new MouseEvent("click", {bubbles: true}));
                for (const one of document.querySelectorAll("[title], [class], b, img"))
                    for (const kind of ["mouseover", "pointerover"]) one.dispatchEvent(new MouseEvent(kind));
            }""".replace("a *|href, ", "")
        )
    page.wait_for_timeout(500)


def ran(page, canary):
    """What ran: frames whose flag is set, and addresses that were asked for."""
    flags = [frame.url for frame in page.frames if frame.evaluate("() => !!window.pwned")]
    return [*flags, *canary.asked]


# ---------------------------------------------------------------- the detector


@pytest.mark.parametrize(
    "name", ["script", "image-error", "svg-load", "link", "pointer", "iframe-document", "style-url"]
)
def test_the_detector_sees_what_runs_in_a_page_without_a_sanitiser(page, canary, name):
    page.set_content(f"<body>{HTML[name].replace(CANARY, canary.address)}</body>")
    touch(page)
    found = ran(page, canary)
    canary.asked.clear()
    assert found


def test_the_corpus_is_large_enough():
    assert len(set(HTML.values()) | set(MARKDOWN.values())) >= 60


# ---------------------------------------------------------------- the pages


def honest(page):
    """The honest part of the submission is still to be seen."""
    expect(page.locator("img[src^='data:image/png']").first).to_be_attached()
    expect(page.locator("th", has_text="honest").first).to_be_attached()
    expect(page.locator("td", has_text="4.25").first).to_be_attached()
    expect(page.locator("b", has_text="bold").first).to_be_attached()
    expect(page.locator("a[href='https://example.org']").first).to_be_attached()
    expect(page.locator("strong", has_text="bold").first).to_be_attached()


def test_the_feedback_page(page, course, canary):
    page.goto(
        (course / "feedback" / "mallory" / NAME / f"{NAME}.html").as_uri(), wait_until="domcontentloaded"
    )
    touch(page)
    assert ran(page, canary) == []
    honest(page)
    assert "An honest formula" in page.locator("body").inner_text()


def test_the_autograded_notebook_in_jupyterlab(page, server, course, canary):
    path = f"autograded/mallory/{NAME}/{NAME}.ipynb"
    cells = len(json.loads((course / path).read_text())["cells"])
    page.goto(server.lab(path))
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(cells, timeout=60_000)
    touch(page)
    assert ran(page, canary) == []
    honest(page)


def submissions(course):
    with Gradebook(f"sqlite:///{course}/gradebook.db", "transformer_block") as gradebook:
        return {s.student.id: s.id for s in gradebook.notebook_submissions(NAME, NAME)}


@pytest.mark.parametrize(
    "path",
    [
        "formgrader/submissions/{mallory}/?index=0",
        "formgrader/submissions/{named}/?index=0",
        f"formgrader/gradebook/{NAME}/{NAME}",
        f"formgrader/manage_submissions/{NAME}",
        "formgrader/manage_students",
        "formgrader/manage_assignments",
    ],
)
def test_the_formgrader(page, server, course, canary, path):
    found = submissions(course)
    page.goto(server.url("api/status"))  # the token becomes a cookie
    path = path.format(mallory=found["mallory"], named=found[HOSTILE])
    answer = page.goto(server.url(path), wait_until="domcontentloaded")
    assert answer.status == 200
    if "manage_s" in path:  # drawn by script, later than the page
        expect(page.locator("body")).to_contain_text(HOSTILE)
    touch(page)
    assert ran(page, canary) == []
    if found["mallory"] in path:
        honest(page)


def test_no_formula_command_that_carries_an_address_is_left(course):
    """MathJax comes from the network and is not there in these tests, so the text itself is looked at."""
    notebook = json.loads((course / "autograded" / "mallory" / NAME / f"{NAME}.ipynb").read_text())
    shown = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    for cell in notebook["cells"]:
        shown += ["".join(o["data"].get("text/html", "")) for o in cell.get("outputs", ()) if "data" in o]
    for command in ("href", "style", "class", "unicode", "require"):
        assert not [text for text in shown if f"\\{command}" in text]
