"""What goes wrong in a build, said to the author of a lesson."""


class BuildError(Exception):
    """A lesson or a declaration that cannot be built; the message says where and what to do."""
