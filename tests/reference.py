"""Build the API reference as HTML: every public name, its signature as written, its docstring.

`python -W error -m tests.reference FOLDER`; a public name without a docstring is an error.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pdoc.doc
import pdoc.doc_ast
import pdoc.doc_pyi
import pdoc.doc_types
import pdoc.render

import balance_analysis as ba

MODULES = ["balance_analysis"]
MODULES += [f"balance_analysis.{name}" for name in ("cluster", "demo", "service.app")]


@dataclass(frozen=True)
class Written:
    """An annotation as it stands in the source, so that `Instant` isn't spelt out everywhere."""

    text: str

    def __repr__(self) -> str:
        return self.text


def as_written(kind: object, *_: object) -> object:
    """Return an annotation for the page, in the place of pdoc's, which spells it out."""
    kind = getattr(kind, "__forward_arg__", kind)
    return Written(kind) if isinstance(kind, str) else kind


def build(folder: Path) -> None:
    """Write a page for each public module, and what its search needs."""
    pdoc.doc.safe_eval_type = pdoc.doc_types.safe_eval_type = as_written
    pdoc.doc_pyi.find_stub_file = lambda _: None  # the stub only says where names are from
    # The keys of a TypedDict that extends another are in none of its bases.
    warnings.filterwarnings("ignore", "Cannot determine where .*Options.* is taken from")
    pdoc.render.configure(docformat="numpy")
    vars(ba).update({name: getattr(ba, name) for name in ba.__all__})  # imported when asked for
    modules = {name: pdoc.doc.Module.from_name(name) for name in MODULES}
    door = modules[ba.__name__]
    for variable in door.variables:
        variable.docstring = variable.docstring or said_of(variable.name)
    bare = [member.name for member in door.own_members if not member.docstring]
    if bare:
        raise SystemExit(f"public names without a docstring: {', '.join(bare)}")
    for module in modules.values():
        page = folder / f"{module.fullname.replace('.', '/')}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pdoc.render.html_module(module, modules), encoding="utf-8")
    (folder / "index.html").write_text(pdoc.render.html_index(modules), encoding="utf-8")
    (folder / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")


def said_of(constant: str) -> str:
    """Return what stands below a constant in the module that it is imported from."""
    ours = (module for name, module in sys.modules.items() if name.startswith("balance_analysis."))
    texts = (pdoc.doc_ast.walk_tree(module).var_docstrings.get(constant) for module in ours)
    return next(filter(None, texts), "")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
