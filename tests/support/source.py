"""Python source as a syntax tree."""

import ast
import gc


def parse(text: str) -> ast.Module:
    """Return the tree of a module's text, with the garbage collector off.

    CPython 3.11 counts the depth of ``ast.parse`` in one place for all calls. A finalizer that parses too, such as one
    that imports a module, runs within the call and makes it fail: "AST constructor recursion depth mismatch".
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_on:
            gc.enable()
