"""Terms of a formula: public functions of a row's columns, with bounds that follow from theirs.

A term is known by its canonical text, such as ``log1p(income)`` or ``age:region``. Releases,
requests and posteriors carry that text and nothing else; whoever reads one parses it again, by the
closed grammar of `term`, which knows no other functions and never evaluates Python.
"""
