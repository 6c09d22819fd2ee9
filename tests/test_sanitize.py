"""What is left of HTML, text and outputs of a submission: nothing that runs, nothing from elsewhere, all that shows."""

import pytest

from autograder.sanitize import one_line, raw_as_markdown, safe_html, safe_outputs, safe_text

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ACTIVE = {
    "a script": ("<p>a</p><script>steal()</script>", "steal"),
    "an event handler": ('<img src="x" onerror="steal()">', "steal"),
    "a link that runs": ('<a href="javascript:steal()">go</a>', "javascript"),
    "a link to a page inside": ('<a href="data:text/html,steal">go</a>', "data:"),
    "a frame": ('<iframe srcdoc="steal"></iframe>', "iframe"),
    "an SVG with a script": ("<svg><script>steal()</script></svg>", "script"),
    "a form": ('<form action="https://elsewhere"><button>go</button></form>', "form"),
    "a style sheet": ("<style>@import 'https://elsewhere'</style>", "elsewhere"),
    "a picture from elsewhere": ('<img src="https://elsewhere/who">', "elsewhere"),
    "a formula that opens an address": (r"<p>$\href{javascript:steal()}{x}$</p>", r"\href"),
}


@pytest.mark.parametrize("html, gone", ACTIVE.values(), ids=ACTIVE)
def test_nothing_of_html_that_acts_is_left(html, gone):
    assert gone in html and gone not in safe_html(html)


def test_what_only_shows_stays():
    for html in (
        "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>",
        "<p><strong>bold</strong> <em>words</em> <code>x = 1</code></p>",
        f'<img alt="a pixel" src="data:image/png;base64,{PIXEL}">',
    ):
        assert safe_html(html) == html
    assert "https://example.org" in safe_html('<a href="https://example.org">go</a>')


def test_outputs_keep_text_and_pictures_and_lose_what_acts():
    data = {
        "text/plain": "<Figure>",
        "text/html": "<p>shown</p><script>steal()</script>",
        "image/png": PIXEL,
        "application/javascript": "steal()",
        "application/vnd.jupyter.widget-view+json": {"model_id": "1"},
    }
    (output,) = safe_outputs([{"output_type": "display_data", "data": data, "metadata": {"steal": 1}}])
    assert output["data"] == {"text/plain": "<Figure>", "text/html": "<p>shown</p>", "image/png": PIXEL}
    assert output["metadata"] == {}
    (drawing,) = safe_outputs(
        [
            {
                "output_type": "display_data",
                "data": {"image/svg+xml": "<svg onload='steal()'/>"},
                "metadata": {},
            }
        ]
    )
    assert drawing["data"]["text/html"].startswith('<img alt="drawing" src="data:image/svg+xml;base64,')
    (nothing,) = safe_outputs(
        [{"output_type": "display_data", "data": {"application/javascript": "steal()"}, "metadata": {}}]
    )
    assert "steal" not in str(nothing) and "is not shown here" in nothing["data"]["text/plain"]


def test_text_cannot_drive_a_terminal_or_break_a_file():
    assert one_line("\x1b[2Jgone\r\nnext\tword") == one_line(" [2Jgone  next word")
    assert "\x1b" not in one_line("\x1b[31mred") and len(one_line("x" * 999, 50)) == 50
    assert safe_text("a\ud800\0b").encode() == b"a??b"


def test_raw_text_is_shown_letter_by_letter():
    assert raw_as_markdown("<b>\n# x") == "    <b>\n    # x"  # markdown shows an indented block as it is
