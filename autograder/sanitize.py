"""Make what a student's notebook holds harmless to look at: no script, no markup that is not plain HTML.

The autograded notebook, the feedback page and the formgrader show it in the instructor's browser.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from html import unescape
from typing import Any

import nh3

PICTURES = ("image/png", "image/jpeg", "image/gif")
MAX_ATTACHMENTS = 8_000_000  # characters of base64 in one cell
MAX_TAGS = 5_000  # in one output: the time that nested or unclosed tags take grows with their square
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_INSIDE = re.compile(r"data:image/(?:png|jpeg|gif);base64,[A-Za-z0-9+/\s]*(?:={1,2}\s*)?")
_IMAGE_INSIDE = re.compile(
    r"(!\[[^\[\]]*\]\((?:attachment:([\w.-]+)|data:image/(?:png|jpeg|gif);base64,[A-Za-z0-9+/]*={0,2})\))",
    re.ASCII,
)
_RUNNING_ADDRESS = re.compile(
    r"((?:j\s*a\s*v\s*a|v\s*b)\s*s\s*c\s*r\s*i\s*p\s*t|\bdata(?=\s*\\*:(?!image/(?:png|jpeg|gif);base64,)(?:[^\s,]{0,99},|[^\s,]{100})))\s*\\*:",
    re.IGNORECASE,
)
_FORMULA_COMMAND = re.compile(
    r"\\(href|style|class|cssId|data|unicode|require|html\w*|includegraphics|bbox|mmlToken|texttip|toggle|url)(?![a-z])",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe_text(text: str) -> str:
    """Text that can be written to any file: lone surrogates and NUL become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def one_line(text: object, limit: int = 200) -> str:
    """Text for a terminal or a table: no control characters, no escape codes, at most `limit` characters."""
    flat = _CONTROL.sub(" ", safe_text(str(text)).replace("\n", " ").replace("\t", " "))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def safe_html(html: str) -> str:
    """HTML without script, style sheets, event handlers, forms, foreign pictures and addresses that run something."""
    schemes = {"http", "https", "mailto", "data"}
    return safe_formulas(nh3.clean(html, url_schemes=schemes, attribute_filter=_safe_attribute))


def _safe_attribute(tag: str, attribute: str, value: str) -> str | None:
    """Pictures are inside the page: what comes from elsewhere would tell who looks at it. Nothing else is."""
    if tag == "img" and attribute == "src":
        return value if _INSIDE.fullmatch(value) else None
    return None if re.match(r"\s*data\s*:", value, re.IGNORECASE) else value


def safe_formulas(text: str) -> str:
    """Text in which no formula holds an address, a style or a macro package: MathJax would follow it."""
    return _FORMULA_COMMAND.sub(r"\\ \1", text)


def safe_markdown(source: str, attached: Collection[str] = ()) -> str:
    """Markdown in which no HTML tag is left: a blank after `<` makes it text, in prose, code and formulas alike.

    Pictures from elsewhere become links, addresses that run something become text.
    attached : the names of the cell's attachments; nbgrader stops at one that is missing.
    """
    source = re.sub(r"<(?=[A-Za-z/!?])", "< ", source)
    source = re.sub(r"&#?\w+;?", lambda found: _safe_entity(found[0]), source)
    source = _RUNNING_ADDRESS.sub(r"\1 :", source)
    pieces = _IMAGE_INSIDE.split(source)  # text, picture, its attachment or None, text, ...
    kept = []
    for text, picture, name in itertools.zip_longest(pieces[::3], pieces[1::3], pieces[2::3]):
        if picture and name and name not in attached:
            text, picture = text + picture, None
        kept += [re.sub(r"(?i)attachment(?=\\*:)", "attachment ", text.replace("![", "! [")), picture or ""]
        if picture is None and text.endswith("!"):
            kept.append(" ")
    return safe_formulas("".join(kept))


def _safe_entity(entity: str) -> str:
    """A sign of ASCII that is written as an entity could spell an address or a tag: a blank makes it text."""
    try:
        meant = unescape(entity)
    except ValueError:  # a number of thousands of digits
        meant = "?"
    return f"& {entity[1:]}" if meant != entity and meant[:1].isascii() else entity


def raw_as_markdown(source: str) -> str:
    """A raw cell as an indented block, which is shown letter by letter."""
    return safe_formulas("\n".join("    " + line for line in source.splitlines()))


def safe_attachments(attachments: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The pictures among a cell's attachments, within bounds."""
    kept, left = {}, MAX_ATTACHMENTS
    for name, bundle in attachments.items():
        pictures = bundle.items() if isinstance(bundle, Mapping) else ()
        for mime, data in pictures:
            picture = _picture(data) if mime in PICTURES else None
            if picture and len(picture) <= left and re.fullmatch(r"[\w.-]+", name, re.ASCII):
                left -= len(picture)
                kept.setdefault(safe_text(name), {})[mime] = picture
    return kept


def safe_outputs(outputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Outputs of a cell with only what is harmless: text, pictures, and cleaned HTML."""
    return [_safe_output(output) for output in outputs]


def _safe_output(output: Mapping[str, Any]) -> dict[str, Any]:
    if output["output_type"] in ("stream", "error"):
        return dict(output)  # shown as text everywhere
    data, given = {}, output["data"]
    if isinstance(given.get("text/plain"), str):
        data["text/plain"] = given["text/plain"]
    if isinstance(given.get("text/html"), str) and given["text/html"].count("<") <= MAX_TAGS:
        data["text/html"] = safe_html(given["text/html"])
    for mime in PICTURES:
        picture = _picture(given.get(mime))
        if picture:
            data[mime] = picture
    if isinstance(given.get("image/svg+xml"), str) and "image/png" not in data:
        data["text/html"] = _svg_picture(given["image/svg+xml"])
    if not data:
        kinds = ", ".join(one_line(mime, 60) for mime in given)
        data["text/plain"] = f"(an output of the kind {kinds or 'nothing'} is not shown here)"
    return {**output, "data": data, "metadata": _sizes(output.get("metadata"))}


def _picture(data: Any) -> str | None:
    """The base64 text of a picture without blanks, or None where it is something else."""
    if isinstance(data, list):
        data = "".join(line for line in data if isinstance(line, str))
    if not isinstance(data, str):
        return None
    data = "".join(data.split())
    return data if data and _BASE64.fullmatch(data) else None


def _svg_picture(svg: str) -> str:
    """An SVG drawing as an <img>: in there no script of it runs."""
    data = base64.b64encode(svg.encode("utf-8", "replace")).decode("ascii")
    return f'<img alt="drawing" src="data:image/svg+xml;base64,{data}">'


def _sizes(metadata: Any) -> dict[str, dict[str, int]]:
    """Width and height of pictures, the only metadata that is kept."""
    found = {}
    for mime in PICTURES:
        about = metadata.get(mime) if isinstance(metadata, Mapping) else None
        sizes = (
            {key: about[key] for key in ("width", "height") if type(about.get(key)) is int}
            if isinstance(about, Mapping)
            else {}
        )
        if sizes:
            found[mime] = sizes
    return found
