"""Pydantic's errors as findings: our words, at the line and column of the document."""

import re
from collections.abc import Callable
from typing import Any, get_args

from pydantic import BaseModel, Tag
from pydantic_core import ErrorDetails

from kvc.capabilities import REFUSED_VARIANTS
from kvc.diagnostics import Diagnostic, Source
from kvc.specs import models
from kvc.specs.nodes import Loc, Mapping, Node, Scalar, document_path, find, key_source, place
from kvc.specs.suggestions import listed, nearest, shortened

_TAG_FIELDS = ("source", "variant", "kind")  # what unions are told apart by
_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
}
# Pydantic's error type -> what our message says and what to write; `{...}` are its context values.
_LIMITS = {
    "greater_than": ("must be greater than {gt}", "write a number above {gt}"),
    "greater_than_equal": ("must be at least {ge}", "write {ge} or more"),
    "less_than_equal": ("must be at most {le}", "write {le} or less"),
    "too_short": ("must not be empty", "write at least {min_length}"),
    "string_too_long": ("must have at most {max_length} characters", "shorten it"),
    "string_pattern_mismatch": (
        "must be lower-case letters, digits, `.`, `_` and `-`",
        "for example: llama-3.1-8b-fp8",
    ),
}


def schema_finding(error: ErrorDetails, root: Node) -> Diagnostic:
    """One pydantic error as a finding."""
    kind = error["type"]
    if kind in _TYPES:
        return _wrong_type(error, root)
    if kind in _LIMITS:
        return _out_of_range(error, root)
    return _OTHERS.get(kind, _other)(error, root)


def _shown(node: Node) -> str:
    if not isinstance(node, Scalar):
        return "a mapping" if isinstance(node, Mapping) else "a list"
    if node.value is None:
        return "nothing"
    text = shortened(node.text)
    return f'the text "{text}"' if isinstance(node.value, str) else f"`{text}`"


def _at(
    error: ErrorDetails, root: Node, code: str, message: str, help: str, source: Source | None = None
) -> Diagnostic:
    loc: Loc = error["loc"]
    return Diagnostic(code, message, source or place(root, loc), document_path(root, loc), help)


def _name(root: Node, loc: Loc) -> str:
    return document_path(root, loc).rpartition(".")[2] or "the spec"


def _type_help(node: Node, wanted: str) -> str:
    if not isinstance(node, Scalar) or node.value is None:
        return f"write {wanted}" if wanted != "a mapping" else "write its fields, indented, below it"
    if wanted == "text":
        return f'quote it: "{shortened(node.text)}"'
    is_number = re.fullmatch(r"[-+]?\d{1,18}(\.\d*)?", node.text)
    if node.quoted and is_number and wanted in ("an integer", "a number"):
        return f"drop the quotes: {node.text}"
    if isinstance(node.value, float) and node.value.is_integer():
        return f"write {int(node.value)}"
    return f"write {wanted}"


def _wrong_type(error: ErrorDetails, root: Node) -> Diagnostic:
    wanted, node = _TYPES[error["type"]], find(root, error["loc"])
    message = f"`{_name(root, error['loc'])}` must be {wanted}, not {_shown(node)}"
    return _at(error, root, "KVC022", message, _type_help(node, wanted))


def _out_of_range(error: ErrorDetails, root: Node) -> Diagnostic:
    limit, help = (text.format(**error.get("ctx", {})) for text in _LIMITS[error["type"]])
    node = find(root, error["loc"])
    got = f", not {_shown(node)}" if isinstance(node, Scalar) else ""
    return _at(error, root, "KVC023", f"`{_name(root, error['loc'])}` {limit}{got}", help)


def _missing(error: ErrorDetails, root: Node) -> Diagnostic:
    parent, field = error["loc"][:-1], str(error["loc"][-1])
    where = document_path(root, parent)
    message = f"`{field}` is missing" + (f" in `{where}`" if where else "")
    help = f"add `{field}:`" + _described(error["loc"])
    return _at(error, root, "KVC021", message, help, key_source(root, parent))


def _described(loc: Loc) -> str:
    """What the field at ``loc`` is, in brackets after a hint; empty where the schema does not say."""
    model = _model_at(loc[:-1])
    field = model.model_fields.get(str(loc[-1])) if model else None
    return f" ({field.description})" if field and field.description else ""


def _unknown(error: ErrorDetails, root: Node) -> Diagnostic:
    model, field = _model_at(error["loc"][:-1]), str(error["loc"][-1])
    help = nearest(field, model.model_fields, "fields here") if model else ""
    return _at(error, root, "KVC020", f"unknown field `{shortened(field)}`", help, key_source(root, error["loc"]))


def _bad_choice(error: ErrorDetails, root: Node) -> Diagnostic:
    node, choices = find(root, error["loc"]), _quoted(error["ctx"]["expected"])
    message = f"`{_name(root, error['loc'])}` must be one of {listed(choices)}, not {_shown(node)}"
    help = nearest(str(node.plain()), choices, "allowed") + _described(error["loc"])
    return _at(error, root, "KVC023", message, help)


def _bad_kind(error: ErrorDetails, root: Node) -> Diagnostic:
    """A union without the wanted variant: the finding stands at the `kind:` value."""
    field, _, wanted = error["ctx"]["tag"].partition("=")
    tags = (tag.partition("=") for tag in _quoted(error["ctx"]["expected_tags"]))
    choices = [name for of, _, name in tags if of == field]
    at = find(root, (*error["loc"], field)).source
    why = _refused(find(root, error["loc"]), wanted)
    if why:
        return _at(error, root, "KVC024", f"{field} `{wanted}` is not supported: {why}", nearest(wanted, choices), at)
    return _at(error, root, "KVC024", f"unknown {field} `{shortened(wanted)}`", nearest(wanted, choices), at)


def _refused(node: Node, variant: str) -> str | None:
    """Why a variant that is known by name is not supported."""
    kind = find(node, ("kind",)).plain()
    return REFUSED_VARIANTS.get(str(kind), {}).get(variant)


def _no_kind(error: ErrorDetails, root: Node) -> Diagnostic:
    loc, node = error["loc"], find(root, error["loc"])
    field = next((name for name in _TAG_FIELDS if name in error["ctx"]["discriminator"]), "kind")
    if isinstance(node, Mapping) and field in node.fields:
        given = node.fields[field]
        help = f"write the {field} as a name"
        return _at(error, root, "KVC022", f"`{field}` must be text, not {_shown(given)}", help, given.source)
    if isinstance(node, Mapping):
        help = f"add `{field}:`"
        return _at(error, root, "KVC021", f"`{field}` is missing in `{document_path(root, loc)}`", help, node.source)
    message = f"`{_name(root, loc)}` must be a mapping with a `{field}`, not {_shown(node)}"
    return _at(error, root, "KVC022", message, f"write {{{field}: ...}}")


def _bad_value(error: ErrorDetails, root: Node) -> Diagnostic:
    reason = error["ctx"]["error"]
    return _at(error, root, "KVC023", str(reason), getattr(reason, "help", ""))


def _other(error: ErrorDetails, root: Node) -> Diagnostic:
    return _at(
        error, root, "KVC023", f"`{_name(root, error['loc'])}`: {error['msg']}", "`kvc schema` prints what is allowed"
    )


_OTHERS: dict[str, Callable[[ErrorDetails, Node], Diagnostic]] = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "literal_error": _bad_choice,
    "union_tag_invalid": _bad_kind,
    "union_tag_not_found": _no_kind,
    "value_error": _bad_value,
}


def _quoted(text: str) -> list[str]:
    """Names in pydantic's list of choices: `'a', 'b' or 'c'`; numbers come without quotes."""
    return re.findall(r"'([^']*)'", text) or re.findall(r"[\w.]+", text)


def _variants(annotation: Any, tag: str = "") -> dict[str, type[BaseModel]]:
    """Models in a type annotation by union tag; the tag is empty where there is no choice."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {tag: annotation}
    arguments = get_args(annotation)
    tag = next((argument.tag for argument in arguments if isinstance(argument, Tag)), tag)
    return {name: model for argument in arguments for name, model in _variants(argument, tag).items()}


def _model_at(loc: Loc) -> type[BaseModel] | None:
    """The model whose fields stand at ``loc``, followed by field names and union tags."""
    model: type[BaseModel] | None = models.Spec
    variants: dict[str, type[BaseModel]] = {}
    for part in loc:
        if part in variants:
            model = variants[str(part)]
        elif model and part in model.model_fields:
            variants = _variants(model.model_fields[str(part)].annotation)
            model = variants.get("")
    return model
