# Plugs autograder/ into nbgrader. A course folder elsewhere loads this file with load_subconfig.
import os
import sys

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "transformer_block"

c.Autograde.exporter_class = "autograder.nbgrader_steps.CourseExporter"
c.Autograde.pre_convert_hook = "autograder.nbgrader_steps.before_copy"
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "autograder.nbgrader_steps.Grade",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]

c.HTMLExporter.preprocessors = ["autograder.pages.EscapeNames"]

c.ExportApp.plugin_class = "autograder.csv_export.CsvWithoutFormulas"

# The first use of a gradebook calls the command `alembic`, which lies beside this Python.
bin_folder = os.path.dirname(sys.executable)
if bin_folder not in os.environ.get("PATH", "").split(os.pathsep):
    os.environ["PATH"] = os.pathsep.join([bin_folder, os.environ.get("PATH", "")])
