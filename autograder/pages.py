"""A step of nbgrader's own pages: its templates write names as they are, so they get them escaped."""

from __future__ import annotations

from html import escape
from typing import Any

from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode

NAMES = ("student", "first_name", "last_name", "notebook_path", "assignment_id", "notebook_id")


class EscapeNames(Preprocessor):
    """Makes text of the names that stand around a notebook. nbgrader_config.py plugs it into its HTML pages."""

    enabled = True

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """The same notebook; the names among the resources escaped."""
        resources.update(
            {key: escape(resources[key]) for key in NAMES if isinstance(resources.get(key), str)}
        )
        return nb, resources
