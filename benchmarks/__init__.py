"""How fast a class is graded, against plain nbgrader and against the floor. `make bench` runs it; nothing here is a test."""

LESSON = "02_layer_norm"
