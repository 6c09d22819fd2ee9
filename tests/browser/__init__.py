"""What a person sees in a browser: a learner in JupyterLab, an instructor at a graded class."""
