"""Build the API reference as HTML: every public name, its signature as written, its docstring.

`python -W error -m tests.reference FOLDER`; a public name without a docstring is an error.
"""

import sys
import types
import warnings
from dataclasses import dataclass
from pathlib import Path

import pdoc.doc
import pdoc.doc_ast
import pdoc.doc_pyi
import pdoc.doc_types
import pdoc.render

import balance_analysis as ba

MODULES = [f"balance_analysis.{name}" for name in ("demo", "service.app")]
TASKS = {
    "Load from nodes and segments": {"node", "load", "segments"},
    "Compute": {"analysis", "slices"},
    "Keep archives": {"archive", "archives", "fill", "proof"},
    "Draw and report": {"figures", "explorer"},
    "Files": {"files"},
    "Tables, assets, names": {"table"},
    "Errors": {"errors"},
}
"""Of each page the rooms whose public names stand on it."""


@dataclass(frozen=True)
class Written:
    """An annotation as it stands in the source, so that `Moment` isn't spelt out everywhere."""

    text: str

    def __repr__(self) -> str:
        return self.text


def as_written(kind: object, *_: object) -> object:
    """Return an annotation for the page, in the place of pdoc's, which spells it out."""
    kind = getattr(kind, "__forward_arg__", kind)
    return Written(kind) if isinstance(kind, str) else kind


def build(folder: Path) -> None:
    """Write a page for each public module, and the index of the search."""
    pdoc.doc.safe_eval_type = pdoc.doc_types.safe_eval_type = as_written
    pdoc.doc_pyi.find_stub_file = lambda _: None  # the stub only says where names are from
    # The keys of a TypedDict that extends another are in none of its bases.
    warnings.filterwarnings("ignore", "Cannot determine where .*Options.* is taken from")
    pdoc.render.configure(docformat="numpy")
    pages = {title: page_of(title, rooms) for title, rooms in TASKS.items()}
    modules = {module.fullname: module for module in pages.values()}
    modules |= {name: pdoc.doc.Module.from_name(name) for name in MODULES}
    names = [member.name for page in pages.values() for member in page.own_members]
    if left := {*ba.__all__} - {*names}:
        raise SystemExit(f"public names on no page: {', '.join(sorted(left))}")
    for name, module in modules.items():
        page = folder / f"{name.replace('.', '/')}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pdoc.render.html_module(module, modules), encoding="utf-8")
    (folder / "index.html").write_text(index_of(pages), encoding="utf-8")
    (folder / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")


def page_of(title: str, rooms: set[str]) -> pdoc.doc.Module:
    """Return a page of the public names of some rooms, each with its docstring."""
    module = types.ModuleType(
        f"balance_analysis.{title.partition(' ')[0].strip(',').lower()}", title
    )
    values = {name: getattr(ba, name) for name in ba.__all__}
    vars(module).update({name: x for name, x in values.items() if room_of(x) in rooms})
    module.__all__ = [name for name in ba.__all__ if name in vars(module)]
    page = pdoc.doc.Module(module)
    for variable in page.variables:
        variable.docstring = variable.docstring or said_of(variable.name)
    if bare := [member.name for member in page.own_members if not member.docstring]:
        raise SystemExit(f"public names without a docstring: {', '.join(bare)}")
    return page


def room_of(value: object) -> str:
    """Return the package of a public name; constants belong to `table`."""
    return getattr(value, "__module__", "balance_analysis.table.schema").split(".")[1]


def index_of(pages: dict[str, pdoc.doc.Module]) -> str:
    """Return the first page: all names by purpose."""
    parts = []
    for title, page in pages.items():
        place = f"{page.fullname.replace('.', '/')}.html"
        links = (f'<a href="{place}#{x.name}"><code>{x.name}</code></a>' for x in page.own_members)
        parts.append(f'<h2><a href="{place}">{title}</a></h2><p>{", ".join(links)}</p>')
    links = (f'<a href="{name.replace(".", "/")}.html"><code>{name}</code></a>' for name in MODULES)
    return f"<!doctype html><title>{ba.__name__}</title>{''.join(parts)}<p>{', '.join(links)}</p>"


def said_of(constant: str) -> str:
    """Return a constant's docstring, from the module that defines it."""
    ours = (module for name, module in sys.modules.items() if name.startswith("balance_analysis."))
    texts = (pdoc.doc_ast.walk_tree(module).var_docstrings.get(constant) for module in ours)
    return next(filter(None, texts), "")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
