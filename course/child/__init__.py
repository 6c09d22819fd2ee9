"""The program in which a submission's cells run when it is graded.

The grader starts it in a process of its own and talks to it over one socket. It imports numpy,
matplotlib, IPython's shell and `course`, and never anything that knows an answer.
"""
